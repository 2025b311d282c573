// The page of one method: what it does, a form for its parameters, the call, and its response.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Answer, CallError, callText } from "../api";
import * as format from "../format";
import { removesStores } from "../model/disks";
import { Method, destructive, resolve } from "../model/document";
import * as snippet from "../model/snippets";
import { inventoryStale } from "../model/storage";
import { indented, parseParams } from "../model/parse";
import { Entry, checkParams, objectName, paramsJSON } from "../model/value";
import { Cell, announce, change, link, useCell } from "../state";
import { AnswerView } from "../ui/answer";
import { Alert, Button, Code, Dialog, Failure, Field, MethodName, Rich, Tabs } from "../ui/parts";
import { EntryField } from "./entry";
import { ParamsEditor, problemsOf } from "./params_editor";
import { LostStores } from "./storage_actions";

type Entries = { [name: string]: Entry };

// A Past is a call made earlier. Calls are kept only while the page is open, because they may contain secrets.
interface Past { id: number; method: string; entries: Entries; at: number; milliseconds: number; error?: string }

const history_ = new Cell<Past[]>([]);

// MethodView shows a method. lacking means that the target was built without the method.
export function MethodView({ method: m, lacking }: { method: Method; lacking: boolean }) {
  const again = history_.value.find((h) => h.method === m.name);
  const [entries, setEntries] = useState<Entries>(again?.entries ?? {});
  const [touched, setTouched] = useState(new Set<string>());
  const [asking, setAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [error, setError] = useState<CallError | null>(null);
  const box = useRef<HTMLElement>(null);
  const answers = useRef<HTMLElement>(null);
  const [written, setWritten] = useState<string | null>(null); // the parameters as JSON; null if they are in the form
  const problems = useMemo(() => (written === null ? checkParams(m, entries) : problemsOf(m, written)), [m, entries, written]);
  const params = paramsJSON(m, entries);
  const fits = written === null || parseParams(m, written)?.problems.size === 0; // whether the form can represent the JSON
  useEffect(() => { box.current?.focus({ preventScroll: true }); announce(m.name); }, []);

  const enter = (name: string, e: Entry, place: string) => {
    setEntries((old) => {
      const next = { ...old, [name]: e };
      if (e === undefined) delete next[name];
      return next;
    });
    setTouched((old) => new Set([...old, place, ""]));
  };
  const submit = (e: Event) => {
    e.preventDefault();
    setTouched(new Set([...problems.keys(), ""]));
    if (problems.size > 0) {
      announce(format.plural(problems.size, "value") + " must be corrected");
      requestAnimationFrame(() => box.current?.querySelector<HTMLElement>("[aria-invalid]")?.focus());
    } else if (m["x-spdk-mutates"]) setAsking(true);
    else void make();
  };
  const make = async () => {
    setAsking(false);
    setBusy(true);
    setError(null);
    setAnswer(null);
    const past: Past = { id: Date.now(), method: m.name, entries, at: Date.now(), milliseconds: 0 };
    const start = performance.now();
    try {
      setAnswer(await callText(m.name, params));
      announce("The call succeeded");
      if (m["x-spdk-mutates"]) inventoryStale.value = true;
    } catch (e) {
      setError(e as CallError);
      past.error = (e as Error).message;
    }
    past.milliseconds = performance.now() - start;
    history_.value = [past, ...history_.value].slice(0, 30);
    setBusy(false);
    requestAnimationFrame(() => answers.current?.scrollIntoView({ block: "nearest" }));
  };
  const general = written === null && touched.has("") ? problems.get("") : undefined;
  return (
    <article ref={box} tabIndex={-1} aria-label={m.name}>
      <a class="button back" href={link("explorer")} onClick={(e) => { e.preventDefault(); change({ method: undefined }); }}>All methods</a>
      <h2 class="mono wrap"><MethodName name={m.name} /></h2>
      <p><Rich text={m.summary} /></p>
      {m.description && <p class="faint"><Rich text={m.description} /></p>}
      <p class="tags">
        {m["x-spdk-mutates"] ? <span class={`tag ${destructive(m.name) ? "bad" : "warn"}`}>{destructive(m.name) ? "may destroy data or connections" : "changes the target"}</span> : <span class="tag good">reads</span>}
        {m["x-spdk-since"] && <span class="tag">since {m["x-spdk-since"]}</span>}
        {m["x-spdk-until"] && <span class="tag warn">until {m["x-spdk-until"]}</span>}
        {m["x-spdk-served-by"] && <span class="tag">answered by the proxy</span>}
        {m["x-spdk-stalls"] !== undefined && <span class="tag warn">stalls a reactor</span>}
      </p>
      {lacking && <Alert level="warn">The target was built without this method. A call fails.</Alert>}
      <form onSubmit={submit} noValidate>
        {m.params.length > 0 && (
          <div class="choice" role="group" aria-label="Parameters">
            <Button pressed={written === null} disabled={!fits} title={fits ? undefined : "Correct the JSON first"} onClick={() => setWritten(null)}>As form</Button>
            <Button pressed={written !== null} onClick={() => setWritten((old) => old ?? indented(params))}>As JSON</Button>
          </div>
        )}
        {m.params.length === 0 ? <p class="faint">This method has no parameters.</p> :
          written !== null ? <ParamsEditor method={m} text={written} onText={setWritten} onEntries={setEntries} /> :
          m.params.map((p) => <EntryField key={p.name} name={p.name} place={p.name} schema={p.schema} required={p.required} summary={p.summary} entry={entries[p.name]} problems={problems} touched={touched} onEntry={(e, place) => enter(p.name, e, place)} />)}
        {general && <Alert level="bad">{general}</Alert>}
        <div class="buttons">
          <Button type="submit" kind={destructive(m.name) && m["x-spdk-mutates"] ? "danger" : "primary"} disabled={busy}>{busy ? "Calling…" : m["x-spdk-mutates"] ? "Call…" : "Call"}</Button>
          <Button kind="quiet" onClick={() => { setEntries({}); setTouched(new Set()); setWritten((old) => old === null ? null : ""); }}>Clear</Button>
          {written === null && touched.size > 0 && problems.size > 0 && <span class="faint">{format.plural(problems.size, "value")} to correct</span>}
        </div>
      </form>
      <section ref={answers} aria-label="Answer" class="answers" aria-live="polite">
        {error && <Alert level="bad"><Failure error={error} /></Alert>}
        {answer && <><h3>Answer <span class="faint figures">in {format.microseconds(answer.milliseconds * 1000)}, {format.bytes(answer.text.length)}</span></h3><AnswerView value={answer.result} text={answer.text} /></>}
      </section>
      <h3>The call</h3>
      <Tabs label="The call" tabs={[
        { name: "JSON", show: () => <Code label="JSON" text={snippet.asJSON(m, params)} /> },
        { name: "curl", show: () => <Code label="curl" text={snippet.asCurl(m, entries, params)} /> },
        { name: "spdk-proxy", show: () => <Code label="spdk-proxy" text={snippet.asCommand(m, entries)} /> },
        { name: "rpc.py", show: () => <Code label="rpc.py" text={snippet.asRPCPy(m, entries, params)} /> },
        { name: "Go", show: () => <Code label="Go" text={snippet.asGo(m, entries, params)} /> },
      ]} />
      <Reference method={m} />
      <History chosen={(h) => { setEntries(h.entries); setTouched(new Set()); setWritten(null); }} />
      {asking && <Confirm method={m} entries={entries} params={params} onClose={() => setAsking(false)} onConfirm={() => void make()} />}
    </article>
  );
}

function Confirm({ method: m, entries, params, onClose, onConfirm }: { method: Method; entries: Entries; params: string; onClose: () => void; onConfirm: () => void }) {
  const harsh = destructive(m.name), name = objectName(m, entries);
  const removes = removesStores(m.name);
  const [typed, setTyped] = useState("");
  const [read, setRead] = useState(!removes);
  return (
    <Dialog title={`Confirm ${m.name}`} onClose={onClose}>
      <form onSubmit={(e) => { e.preventDefault(); onConfirm(); }}>
        <Alert level={harsh ? "warn" : "info"}>{m.summary} {harsh ? "Data or connections may be lost, and there is no way back." : "The call changes the target."}</Alert>
        {removes && <LostStores method={m.name} params={JSON.parse(params || "{}")} onRead={() => setRead(true)} />}
        <pre class="called" tabIndex={0}>{m.name} {params}</pre>
        {harsh && <Field label={`To confirm, type ${name}`}>{(f) => <input {...f} value={typed} autocomplete="off" spellcheck={false} onInput={(e) => setTyped(e.currentTarget.value)} />}</Field>}
        <footer><Button onClick={onClose}>Cancel</Button><Button type="submit" kind={harsh ? "danger" : "primary"} disabled={!read || harsh && typed !== name}>Make the call</Button></footer>
      </form>
    </Dialog>
  );
}

function Reference({ method: m }: { method: Method }) {
  const result = resolve(m.result.schema);
  return (
    <details class="reference"><summary>Result and errors</summary>
      <p><Rich text={m.result.summary} /> <span class="faint">({result.type ?? "any JSON"})</span></p>
      {result.properties && <dl class="facts">{Object.entries(result.properties).map(([name, s]) => <Described key={name} name={name} about={resolve(s).description ?? resolve(s).type ?? ""} />)}</dl>}
      {(m.errors ?? []).length > 0 && <dl class="facts">{m.errors!.map((e) => <Described key={e.code} name={String(e.code)} about={e.message} />)}</dl>}
    </details>
  );
}

const Described = ({ name, about }: { name: string; about: string }) => <><dt class="mono">{name}</dt><dd><Rich text={about} /></dd></>;

function History({ chosen }: { chosen: (h: Past) => void }) {
  const list = useCell(history_);
  if (list.length === 0) return null;
  return (
    <section class="history"><h3>History</h3>
      <ul>{list.slice(0, 12).map((h) => (
        <li key={h.id}><time class="figures faint">{format.time(h.at)}</time>
          <a class="mono wrap" href={link("explorer", { method: h.method })} onClick={(e) => { e.preventDefault(); change({ method: h.method }); chosen(h); }}><MethodName name={h.method} /></a>
          <span class={h.error ? "problem clip" : "faint clip"} title={h.error}>{h.error ?? `ok in ${format.microseconds(h.milliseconds * 1000)}`}</span></li>
      ))}</ul>
    </section>
  );
}
