// The page with the live audit log: who called which method, and who was refused.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { listen } from "../api";
import * as format from "../format";
import { csv, failed, jsonLines, known, type Line, objects, outcome, shows } from "../model/audit";
import { document_ } from "../model/document";
import { announce, change, route, useCell, useSearch } from "../state";
import { Column, Grid } from "../ui/grid";
import { Alert, Button, Empty, MethodName, Search } from "../ui/parts";

const kept = 5000;

const tones: Record<string, string> = { allow: "", deny: "bad", learn: "warn", unauthenticated: "bad", none: "warn" };

const columns: Column<Line>[] = [
  { key: "time", title: "Time", show: (l) => <span class="figures" title={l.time}><span class="only-wide">{format.day(l.time)} </span>{format.time(l.time)}</span> },
  { key: "user", title: "User", show: (l) => <span class="clip" title={l.user}>{l.user || "–"}</span> },
  { key: "call", title: "Call", show: (l) => <><span class="only-narrow clip faint" title={l.user}>{l.user || "–"}</span><span class="clip mono" title={l.method}><MethodName name={l.method ?? ""} /></span></> },
  { key: "objects", title: "Objects", show: (l) => <span class="clip faint" title={objects(l)}>{objects(l)}</span> },
  { key: "decision", title: "Decision", show: (l) => <span class={`tag ${failed(l) && l.decision === "allow" ? "warn" : tones[l.decision ?? ""] ?? ""}`}>{outcome(l)}</span> },
  { key: "latency", title: "Time taken", number: true, show: (l) => (typeof l.latency_ms === "number" ? format.microseconds(l.latency_ms * 1000) : "") },
];

export function Audit() {
  const here = useCell(route).values, doc = useCell(document_);
  const methods = useMemo(() => new Map((doc?.methods ?? []).map((m) => [m.name, m])), [doc]);
  const [lines, setLines] = useState<Line[]>([]);
  const [state, setState] = useState<"open" | "waiting" | "closed">("waiting");
  const [paused, setPaused] = useState(false);
  const [missed, setMissed] = useState(0);
  const [text, setText, searched] = useSearch(), query = searched.toLowerCase();
  const waiting = useRef<Line[]>([]);
  const stopped = useRef(false);
  stopped.current = paused;

  useEffect(() => {
    let n = 0, frame = 0, last = "";
    const flush = () => {
      frame = 0;
      if (stopped.current || waiting.current.length === 0) return;
      const fresh = waiting.current.reverse();
      waiting.current = [];
      setLines((old) => [...fresh, ...old].slice(0, kept));
    };
    const stop = listen("/console/audit", ["call", "missed"], (type, data, id) => {
      try {
        if (type === "missed") return setMissed((m) => m + (JSON.parse(data).count ?? 1));
        if (known(id, last)) return;
        last = id;
        waiting.current.push({ ...JSON.parse(data), n: ++n });
        if (waiting.current.length > kept) waiting.current.shift();
        frame ||= window.setTimeout(flush, 150);
      } catch { /* a line that is no JSON */ }
    }, setState);
    return () => { stop(); clearTimeout(frame); };
  }, []);
  const shown = useMemo(() => lines.filter(shows({ ...here, query }, methods)), [lines, query, here, methods]);
  const chosen = here.line ? lines.find((l) => String(l.n) === here.line) : undefined;
  const resume = () => {
    setPaused(!paused);
    announce(paused ? "New calls are shown" : "Paused");
    if (paused) {
      setLines((old) => [...waiting.current.reverse(), ...old].slice(0, kept));
      waiting.current = [];
    }
  };
  return (
    <div class={`list-page ${chosen ? "with-panel" : ""}`}>
      <div class="toolbar">
        <Search value={text} label="Search user, method or object" onInput={setText} />
        <div class="choice" role="group" aria-label="Which calls">
          {([["", "All"], ["changes", "Changes"], ["refused", "Refused or failed"]] as const).map(([only, name]) => <Button key={only} pressed={(here.only ?? "") === only} onClick={() => change({ only })}>{name}</Button>)}
        </div>
        <label class="pick"><span class="unseen">Decision</span><select value={here.decision ?? ""} onChange={(e) => change({ decision: e.currentTarget.value })}><option value="">All decisions</option>{["allow", "failed", "deny", "unauthenticated", "learn"].map((d) => <option key={d}>{d}</option>)}</select></label>
        <div class="when">
          <label class="pick">From <input type="datetime-local" value={here.from ?? ""} onChange={(e) => change({ from: e.currentTarget.value })} /></label>
          <label class="pick">to <input type="datetime-local" value={here.to ?? ""} onChange={(e) => change({ to: e.currentTarget.value })} /></label>
        </div>
        <Button pressed={here.reads === "shown"} title="Calls by which the console itself reads, for everybody who uses it" onClick={() => change({ reads: here.reads === "shown" ? undefined : "shown" })}>Console's reads</Button>
        <span class="grow" />
        <Button title="Download the calls that are shown" onClick={() => save("audit.jsonl", "application/x-ndjson", jsonLines(shown))}>JSON lines</Button>
        <Button title="Download the calls that are shown, as a table" onClick={() => save("audit.csv", "text/csv", csv(shown))}>CSV</Button>
        <span class="faint figures shown">{format.plural(shown.length, "call")}</span>
        <Button icon={paused ? "play" : "pause"} onClick={resume}>{paused ? "Continue" : "Pause"}</Button>
      </div>
      {state === "closed" && <Alert level="info">The audit log is not available: only administrators may follow it, or the proxy has ended the stream. Reload the page to try again.</Alert>}
      {missed > 0 && <Alert level="warn">{format.plural(missed, "call")} came faster than this page could show. The proxy's log has them.</Alert>}
      <div class="split">
        <Grid label="Calls, newest first" tall rows={shown} columns={columns} id={(l) => String(l.n)} chosen={chosen && String(chosen.n)} onOpen={(l) => change({ line: String(l.n) })} tone={(l) => (l.decision === "deny" || l.decision === "unauthenticated" ? "refused" : "")}
          empty={<Empty title={lines.length ? "No call matches" : state === "open" ? "No call yet" : "Connecting…"}>{lines.length ? "user:NAME, method:NAME and object:NAME search one column. The console's own reads are hidden at first." : "Calls appear here as they are made."}</Empty>} />
        {chosen && <LinePanel line={chosen} onClose={() => change({ line: undefined })} />}
      </div>
    </div>
  );
}

// save lets the browser save a file.
function save(name: string, type: string, text: string) {
  const url = URL.createObjectURL(new Blob([text], { type })), a = document.createElement("a");
  a.href = url;
  a.download = name;
  a.click();
  window.setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function LinePanel({ line, onClose }: { line: Line; onClose: () => void }) {
  const shown = Object.entries(line).filter(([k, v]) => k !== "n" && v !== "" && v !== null && v !== undefined);
  return (
    <aside class="panel" aria-label="One call" onKeyDown={(e) => { if (e.key === "Escape") onClose(); }}>
      <header><h2 class="mono wrap">{line.method}</h2><Button icon="close" label="Close the details" kind="quiet" onClick={onClose} /></header>
      <dl class="facts">{shown.map(([k, v]) => <Member key={k} name={k} value={v} />)}</dl>
    </aside>
  );
}

const Member = ({ name, value }: { name: string; value: unknown }) => <><dt class="mono">{name}</dt><dd class={typeof value === "object" ? "mono" : "figures"}>{typeof value === "object" ? JSON.stringify(value, null, 1) : String(value)}</dd></>;
