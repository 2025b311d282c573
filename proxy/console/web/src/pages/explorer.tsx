// The RPC explorer: every method that the user may call, from the schema.
import { useEffect, useMemo, useRef } from "preact/hooks";
import * as format from "../format";
import { Method, area, document_, documentError, loadDocument, lacks, loadPresent, present } from "../model/document";
import { announce, link, route, useCell, useSearch } from "../state";
import { Empty, ErrorNote, MethodName, Search } from "../ui/parts";
import { MethodView } from "./method";

function found(methods: Method[], query: string): Method[] {
  const words = query.toLowerCase().split(/[\s,]+/).filter(Boolean);
  if (words.length === 0) return methods;
  const score = (m: Method) => {
    const text = `${m.name} ${m.summary ?? ""} ${m.params.map((p) => p.name).join(" ")}`.toLowerCase();
    if (!words.every((w) => text.includes(w))) return 0;
    return words.every((w) => m.name.includes(w)) ? (m.name === words.join("_") ? 3 : 2) : 1;
  };
  return methods.map((m) => ({ m, n: score(m) })).filter((x) => x.n > 0).sort((a, b) => b.n - a.n).map((x) => x.m);
}

// moveFocus moves the focus within the list of methods with the arrow keys: the list is a single stop for Tab.
function moveFocus(e: KeyboardEvent) {
  const links = [...(e.currentTarget as HTMLElement).querySelectorAll("a")];
  const at = links.indexOf(document.activeElement as HTMLAnchorElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[e.key];
  if (at < 0 || to === undefined || !links[to]) return;
  e.preventDefault();
  links[to].focus();
}

export function Explorer() {
  const doc = useCell(document_), problem = useCell(documentError), here = useCell(route).values;
  const [text, setText, query] = useSearch();
  const names = useCell(present);
  useEffect(() => { void (document_.value ? Promise.resolve() : loadDocument()).then(loadPresent); }, []);
  const offered = useMemo(() => (doc?.methods ?? []).filter((m) => !lacks(m, names)), [doc, names]);
  const list = useMemo(() => found(offered, query), [offered, query]);
  const missing = (doc?.methods.length ?? 0) - offered.length;
  const method = doc?.methods.find((m) => m.name === here.method);
  useEffect(() => { if (doc && query) announce(format.plural(list.length, "method") + " found"); }, [list.length]);
  if (!doc && problem) return <ErrorNote error={new Error(`The schema cannot be read: ${problem}`)} retry={() => void loadDocument()} />;
  return (
    <div class={`list-page explorer ${method ? "chosen" : ""}`}>
      <div class="split">
        <section class="methods card" aria-label="Methods">
          <Search value={text} label="Search methods and parameters" onInput={setText} />
          <p class="faint small figures">{doc ? `${format.count(list.length)} of ${format.plural(offered.length, "method")} that you may call${missing ? `. The target was built without ${format.count(missing)} more` : ""}` : "Loading the schema…"}</p>
          <nav aria-label="Methods" onKeyDown={moveFocus}><MethodList list={list} grouped={!query} chosen={method?.name} query={query} /></nav>
        </section>
        <div class="method" tabIndex={-1}>
          {method ? <MethodView key={method.name} method={method} lacking={lacks(method, names)} /> :
            doc && here.method ? <Empty title={`${here.method} is not among the methods that you may call`} /> :
              <Empty title="Choose a method">Each has its description, a form that knows the types, and the call for curl, Python and Go.</Empty>}
        </div>
      </div>
    </div>
  );
}

function MethodList({ list, grouped, chosen, query }: { list: Method[]; grouped: boolean; chosen?: string; query: string }) {
  const stop = list.some((m) => m.name === chosen) ? chosen : list[0]?.name;
  const item = (m: Method) => (
    <li key={m.name}><a tabIndex={m.name === stop ? 0 : -1} href={link("explorer", { method: m.name, q: query })} aria-current={m.name === chosen ? "true" : undefined} title={m.summary}>
      <span class="mono wrap"><MethodName name={m.name} /></span>{m["x-spdk-mutates"] && <span class="dot" title="changes the target"><span class="unseen">changes the target</span></span>}</a></li>
  );
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => { box.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" }); }, [chosen, grouped]);
  if (!grouped) return list.length ? <ul>{list.map(item)}</ul> : <p class="faint">No method matches.</p>;
  const areas = [...new Set(list.map(area))].sort();
  return <div ref={box}>{areas.map((a) => <section key={a}><h2>{a}</h2><ul>{list.filter((m) => area(m) === a).map(item)}</ul></section>)}</div>;
}
