// A dialog that makes several calls. It first shows the calls, then makes them one after another. If one fails, it shows what is in effect.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { document_ } from "../model/document";
import { Refusal } from "../model/exports";
import { parseParams } from "../model/parse";
import { can } from "../model/session";
import * as snippet from "../model/snippets";
import { Outcome, Step, Undo, run, textOf } from "../model/steps";
import { readInventory } from "../model/storage";
import { announce, notify } from "../state";
import { Alert, Button, Code, Dialog, Failure, Tabs } from "../ui/parts";

export interface Planned { steps: Step[]; warnings: string[] }

interface Props<P extends Planned> {
  title: string;
  action: string;
  danger?: boolean;
  plan: P | null; // null if the request is incomplete or refused
  problem?: Error; // why there is no plan
  confirmed?: boolean; // false if the user must type a name first
  command: string; // the spdk-proxy command that makes the same calls
  effect: ComponentChildren;
  again: () => Promise<P>; // reads the target's state again, and plans again
  after: (plan: P) => Promise<ComponentChildren>; // what to show after all calls have been made; null closes the dialog
  done: string;
  onClose: () => void;
  children?: ComponentChildren;
}

type Phase = "form" | "working" | "failed" | "made";

const calls = (p: Planned) => p.steps.map(textOf).join("\n");

export function PlanForm<P extends Planned>({ title, action, danger, plan, problem, confirmed = true, command, effect, again, after, done, onClose, children }: Props<P>) {
  const [phase, setPhase] = useState<Phase>("form");
  const [error, setError] = useState<Error | null>(null); // the error of reading the state
  const [changed, setChanged] = useState(false);
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [running, setRunning] = useState<Step[]>([]), [made, setMade] = useState(0);
  const [result, setResult] = useState<ComponentChildren>(null);
  const shown = useRef(true);
  useEffect(() => () => { shown.current = false; }, []);
  useEffect(() => {
    if (phase !== "working") return;
    const leave = (e: BeforeUnloadEvent) => e.preventDefault();
    addEventListener("beforeunload", leave);
    return () => removeEventListener("beforeunload", leave);
  }, [phase]);

  const submit = async (e: Event) => {
    e.preventDefault();
    if (!plan || !confirmed || phase === "working") return;
    setError(null);
    setChanged(false);
    setRunning([]);
    setPhase("working");
    let now: P;
    try {
      now = await again();
    } catch (e) {
      setError(e as Error);
      setPhase("form");
      return;
    }
    if (calls(now) !== calls(plan)) {
      setChanged(true);
      setPhase("form");
      return;
    }
    setMade(0);
    setRunning(now.steps);
    const end = await run(now.steps, setMade);
    void readInventory();
    if (end.failed) {
      setOutcome(end);
      setPhase("failed");
      if (!shown.current) notify(failureText(title, end), true, true); // the dialog was closed, but its calls have had an effect
      return;
    }
    notify(done);
    let more: ComponentChildren = null;
    try { more = await after(now); } catch (e) { more = <Alert level="warn">All calls were made, but the result could not be read back: <Failure error={e as Error} /></Alert>; }
    if (more === null) onClose();
    else {
      setResult(more);
      setPhase("made");
    }
  };
  const close = () => { if (phase !== "working") onClose(); };
  const forbidden = plan ? [...new Set(plan.steps.map((s) => s.method))].filter((m) => !can(m)) : [];
  const helpless = plan && plan.steps.length > 1 ? [...new Set(plan.steps.flatMap((s) => s.undo?.method ?? []))].filter((m) => !can(m)) : [];
  return (
    <Dialog title={title} onClose={close} wide>
      {phase === "made" ? <><div class="result">{result}</div><footer><Button kind="primary" onClick={onClose}>Done</Button></footer></> : (
        <form onSubmit={(e) => void submit(e)}>
          {phase === "failed" && outcome ? <Failed outcome={outcome} /> : <>
            <fieldset class="bare" disabled={phase === "working"}>{children}</fieldset>
            {problem && <Alert level={problem instanceof Refusal ? "warn" : "info"}><span aria-live="polite">{problem.message}</span></Alert>}
            {plan && plan.warnings.map((w) => <Alert key={w} level="warn">{w}</Alert>)}
            {plan && <Alert level={danger ? "warn" : "info"}>{plan.steps.length > 0 ? effect : "Nothing is to be done: the target is in this state already."}</Alert>}
            {forbidden.length > 0 && <Alert level="bad">Your roles do not permit {forbidden.join(", ")}.</Alert>}
            {helpless.length > 0 && <Alert level="warn">Your roles do not permit {helpless.join(", ")}: if a call fails, what the calls before it made stays.</Alert>}
            {plan && plan.steps.length > 0 && (running.length > 0 ? <Progress steps={running} made={made} /> : <Calls steps={plan.steps} command={command} />)}
            {changed && <Alert level="bad">The target has changed meanwhile, so other calls are needed. Nothing was changed: check them again.</Alert>}
            {error && <Alert level="bad"><Failure error={error} /></Alert>}
          </>}
          <footer>
            <Button onClick={close} disabled={phase === "working"}>{phase === "failed" ? "Close" : "Cancel"}</Button>
            {phase === "failed" ? <Button onClick={() => { setOutcome(null); setRunning([]); void again().then(() => setPhase("form"), (e) => { setError(e); setPhase("form"); }); }}>Back</Button> :
              <Button type="submit" kind={danger ? "danger" : "primary"} disabled={!plan || plan.steps.length === 0 || forbidden.length > 0 || !confirmed || phase === "working"}>{phase === "working" ? "Working…" : action}</Button>}
          </footer>
        </form>
      )}
    </Dialog>
  );
}

// Calls shows the calls that will be made, and the spdk-proxy command that makes the same calls.
function Calls({ steps, command }: { steps: Step[]; command: string }) {
  const other = (show: (s: Step) => string) => () => steps.map(show).join("\n\n");
  const written = (as: (m: NonNullable<typeof document_.value>["methods"][number], entries: NonNullable<ReturnType<typeof parseParams>>["entries"], params: string) => string) => other((s) => {
    const m = document_.value?.methods.find((o) => o.name === s.method), params = JSON.stringify(s.shown ?? s.params), parsed = m && parseParams(m, params);
    return m && parsed ? as(m, parsed.entries, params) : textOf(s);
  });
  const tabs: [name: string, text: () => string][] = [
    ["Calls", () => steps.map(textOf).join("\n")],
    ["spdk-proxy", () => command],
    ["JSON", written((m, _, params) => snippet.asJSON(m, params))],
    ["curl", written(snippet.asCurl)],
    ["rpc.py", written(snippet.asRPCPy)],
  ];
  return (
    <details class="call"><summary>{steps.length === 1 ? "The call" : `The ${steps.length} calls`}</summary>
      <Tabs label="The calls" tabs={tabs.map(([name, text]) => ({ name, show: () => <Code label={name} text={text()} /> }))} />
    </details>
  );
}

function Progress({ steps, made }: { steps: Step[]; made: number }) {
  useEffect(() => announce(`${made} of ${steps.length} calls made`), [made]);
  return <ol class="steps">{steps.map((s, i) => <li key={i} class={i < made ? "" : "faint"}><span class="mono">{s.method}</span> {i < made ? "made" : i === made ? "…" : ""}</li>)}</ol>;
}

function Failed({ outcome: o }: { outcome: Outcome }) {
  const list = (items: { method: string; params: object; shown?: object }[], errors: Error[] = []) =>
    <ul class="plain mono">{items.map((s, i) => <li key={i} class="wrap">{textOf(s)}{errors[i] && <>: <Failure error={errors[i]} /></>}</li>)}</ul>;
  return (
    <div class="outcome">
      <Alert level="bad"><p><b>{o.failed!.step.method}</b> failed. <Failure error={o.failed!.error} /></p></Alert>
      {o.left.length > 0 && <Alert level="bad">These calls, which undo what this dialog did, failed. Make them in the explorer:{list(o.left.map((l) => l.undo), o.left.map((l) => l.error))}</Alert>}
      {o.stays.length > 0 && <Alert level="warn">These calls were made and stay in effect:{list(o.stays)}</Alert>}
      {o.undone.length > 0 && <Alert level="info">{o.left.length + o.stays.length > 0 ? "These calls undid the rest of what this dialog had done:" : "What this dialog had done was undone:"}{list(o.undone)}</Alert>}
      {o.left.length + o.stays.length + o.undone.length === 0 && <Alert level="info">{o.unsure ? "Whether the call was executed is not known: check the state." : "Nothing was changed."}</Alert>}
    </div>
  );
}

function failureText(title: string, o: Outcome): string {
  const names = (list: Undo[]) => list.map(textOf).join(", ");
  const left = o.left.length > 0 ? ` These calls, which undo what was done, failed: ${names(o.left.map((l) => l.undo))}.` : "";
  const stays = o.stays.length > 0 ? ` These calls were made and stay in effect: ${names(o.stays)}.` : "";
  return `${title}: ${o.failed!.step.method} failed: ${o.failed!.error.message}.${left}${stays}${left || stays ? "" : o.undone.length > 0 ? " What had been done was undone." : o.unsure ? " Check the state." : " Nothing was changed."}`;
}
