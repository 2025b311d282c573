// The page that shows who the user is, which methods the user may call, and why.
import { useEffect, useMemo, useState } from "preact/hooks";
import { getJSON, postJSON } from "../api";
import * as format from "../format";
import { session } from "../model/session";
import { announce, change, link, route, useCell, useLoad, useSearch } from "../state";
import { LimitFacts, TenantNames } from "./quota";
import { Alert, Button, Empty, ErrorNote, Field, Search } from "../ui/parts";

interface MethodAccess { name: string; decision: "allowed" | "refused" | "conditional"; rule: string; depends?: string[]; learning?: boolean; redacted?: boolean }
interface AccessAnswer { user: string; roles: string[]; tenant: string | null; methods: MethodAccess[] }
interface Explanation {
  user: string; roles: string[]; method: string; summary: string; verdict: string; decision: string; rule: string;
  rules: { role: string; rule: string; effect: string; decides: boolean; why: string }[];
  translated: { from: string; to: string }[];
  invalid: string | null; standing: string | null; learning: boolean; redacted: boolean;
}

const tones: Record<string, string> = { allowed: "good", refused: "bad", conditional: "warn" };
const words: Record<string, string> = { allowed: "allowed", refused: "refused", conditional: "depends on the parameters" };

export function Access() {
  const s = useCell(session)!, here = useCell(route).values;
  const { data, error, refresh } = useLoad((signal) => getJSON<AccessAnswer>("/console/access", signal), []);
  const [text, setText, searched] = useSearch(), query = searched.toLowerCase();
  const list = useMemo(() => (data?.methods ?? []).filter((m) => m.name.includes(query) && (!here.decision || m.decision === here.decision)), [data, query, here.decision]);
  useEffect(() => { if (query) announce(format.plural(list.length, "method") + " found"); }, [list.length]);
  const number = (d: string) => data?.methods.filter((m) => m.decision === d).length ?? 0;
  return (
    <div class="access">
      <div class="first">
      <section class="card">
        <h2>You</h2>
        <dl class="facts">
          <dt>User</dt><dd>{s.user}</dd>
          <dt>Roles</dt><dd>{s.roles.join(", ") || "none"}</dd>
          <dt>Tenant</dt><dd>{s.tenant ? <>{s.tenant}: you see and change only its objects</> : "none: you see all objects"}</dd>
          {s.tenant && <TenantNames />}
          <dt>Signed in by</dt><dd>{s.method}</dd>
          <dt>Methods</dt><dd class="figures">{data ? `${number("allowed")} allowed, ${number("conditional")} depending on parameters, ${number("refused")} refused` : "…"}</dd>
          <LimitFacts />
        </dl>
      </section>
      <Explain methods={data?.methods ?? []} administrator={s.administrator} />
      </div>
      <section class="card what">
        <h2>Methods</h2>
        {error && <ErrorNote error={error} retry={refresh} />}
        <div class="toolbar">
          <Search value={text} label="Search methods" onInput={setText} />
          <label class="pick"><span class="unseen">Decision</span><select value={here.decision ?? ""} onChange={(e) => change({ decision: e.currentTarget.value })}><option value="">All decisions</option><option value="allowed">Allowed</option><option value="conditional">Depends on parameters</option><option value="refused">Refused</option></select></label>
        </div>
        <div class="scroll" tabIndex={0} role="region" aria-label="Methods and decisions">
          {data && list.length === 0 ? <Empty title="No method matches" /> :
            <table><thead><tr><th scope="col">Method</th><th scope="col">Decision</th><th scope="col">Rule</th></tr></thead>
              <tbody>{list.map((m) => (
                <tr key={m.name}><td class="mono">{m.decision === "refused" ? m.name : <a href={link("explorer", { method: m.name })}>{m.name}</a>}</td>
                  <td><span class={`tag ${tones[m.decision]}`}>{words[m.decision]}</span>{m.learning && <span class="tag warn">learning</span>}{m.redacted && <span class="tag">without secrets</span>}</td>
                  <td title={[m.rule, ...(m.depends ?? [])].join("; ")}>{m.rule || m.depends?.join("; ")}</td></tr>))}
              </tbody></table>}
        </div>
      </section>
    </div>
  );
}

function Explain({ methods, administrator }: { methods: MethodAccess[]; administrator: boolean }) {
  const [method, setMethod] = useState(route.value.values.method ?? "");
  const [params, setParams] = useState("");
  const [user, setUser] = useState("");
  const [busy, setBusy] = useState(false);
  const [answer, setAnswer] = useState<Explanation | null>(null);
  const [error, setError] = useState<Error | null>(null);
  let wrong = "";
  if (params.trim()) try { if (typeof JSON.parse(params) !== "object") wrong = "Give a JSON object"; } catch { wrong = "Give a JSON object"; }
  const submit = async (e: Event) => {
    e.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const found = await postJSON<Explanation>("/console/explain", { method: method.trim(), ...(params.trim() ? { params: JSON.parse(params) } : {}), ...(user.trim() ? { user: user.trim() } : {}) });
      setAnswer(found);
      announce(found.verdict);
    } catch (e) { setAnswer(null); setError(e as Error); }
    setBusy(false);
  };
  return (
    <section class="card explain">
      <h2>Explain a decision</h2>
      <form onSubmit={(e) => void submit(e)}>
        <Field label="Method">{(f) => <><input {...f} class="mono" list="explain-methods" value={method} required autocomplete="off" spellcheck={false} onInput={(e) => setMethod(e.currentTarget.value)} /><datalist id="explain-methods">{methods.map((m) => <option key={m.name} value={m.name} />)}</datalist></>}</Field>
        {administrator && <Field label="User" hint="Empty for yourself.">{(f) => <input {...f} value={user} autocomplete="off" spellcheck={false} onInput={(e) => setUser(e.currentTarget.value)} />}</Field>}
        <Field label="Parameters" hint="As a JSON object. Without them, only the method is considered. Nothing is executed." error={wrong}>{(f) => <textarea {...f} class="mono" rows={3} spellcheck={false} value={params} placeholder='{"name": "lvs0/vol1"}' onInput={(e) => setParams(e.currentTarget.value)} />}</Field>
        <Button kind="primary" type="submit" disabled={busy || !!wrong || !method.trim()}>Explain</Button>
      </form>
      <div aria-live="polite" class="verdict">
        {error && <Alert level="bad">{error.message}</Alert>}
        {answer && <>
          <Alert level={answer.decision === "allowed" ? "good" : answer.decision === "refused" ? "bad" : "warn"}>{answer.verdict}</Alert>
          {answer.invalid && <p>The parameters are not valid: {answer.invalid}</p>}
          {answer.standing && <p class="faint">{answer.standing}</p>}
          {answer.translated.length > 0 && <p class="faint">Renamed for the target: {answer.translated.map((t) => `${t.from} to ${t.to}`).join(", ")}</p>}
          {answer.rules.length > 0 && <table><thead><tr><th scope="col">Role</th><th scope="col">Rule</th><th scope="col">Effect on this decision</th></tr></thead>
            <tbody>{answer.rules.map((r, i) => <tr key={i} class={r.decides ? "strong" : ""}><td>{r.role}</td><td class="mono">{r.rule}</td><td><span class={`tag ${r.effect === "allow" ? "good" : "bad"}`}>{r.effect}</span> {r.why}</td></tr>)}</tbody></table>}
        </>}
      </div>
    </section>
  );
}
