// The dialog that withdraws an NVMe-oF export, or the admission of some of its hosts.
import { useEffect, useState } from "preact/hooks";
import { Refusal, connectedHosts, driverPrefix, readWithdrawalState } from "../model/exports";
import { Withdrawal, asUnexport, planWithdrawal } from "../model/export_plan";
import { Volume } from "../model/storage";
import { Confirm } from "../ui/action_form";
import { Alert, Button, Dialog, ErrorNote, Failure, Field } from "../ui/parts";
import { PlanForm } from "./plan_form";

// A Look contains what is known about an export before it is withdrawn.
interface Look { state: Awaited<ReturnType<typeof readWithdrawalState>>; connected: string[]; blind?: Error }

async function lookAt(id: string, nqn: string): Promise<Look> {
  const state = await readWithdrawalState(id);
  try {
    return { state, connected: await connectedHosts(nqn) };
  } catch (e) {
    return { state, connected: [], blind: e as Error };
  }
}

export function WithdrawExport({ volume: v, nqn, hosts, onClose }: { volume: Volume; nqn: string; hosts: string[]; onClose: () => void }) {
  const [found, setFound] = useState<Look | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [typed, setTyped] = useState(""), [own, setOwn] = useState("");
  const ofDriver = nqn.startsWith(driverPrefix), name = ofDriver ? own.trim() : "";
  const read = async () => {
    const now = await lookAt(v.id, nqn);
    setFound(now);
    return now;
  };
  const look = () => { setError(null); void read().catch(setError); };
  useEffect(look, []);
  const planOf = ({ state }: Look) => {
    const plan = planWithdrawal(state.volume, state.subsystems, hosts, name);
    if (plan.nqn !== nqn) throw new Refusal(`${v.alias} is now exported as ${plan.nqn}. Nothing was changed`);
    return plan;
  };
  const title = hosts.length ? `Remove a host from the export of ${v.name}` : `Withdraw the export of ${v.name}`;
  if (!found) return <Dialog title={title} onClose={onClose} wide>{error ? <ErrorNote error={error} retry={look} /> : <p>Reading the export…</p>}<footer><Button onClick={onClose}>Cancel</Button></footer></Dialog>;
  let plan: Withdrawal | null = null, problem: Error | undefined;
  try { plan = planOf(found); } catch (e) { problem = e as Error; }
  const cut = losing(found, plan), asks = plan !== null && (cut.length > 0 || !!found.blind), confirmed = !asks || typed === v.name;
  return (
    <PlanForm title={title} action={hosts.length ? "Remove the host" : "Withdraw"} danger plan={plan} problem={problem} confirmed={confirmed} onClose={onClose}
      command={plan ? asUnexport(plan, hosts, name, asks) : ""} done={hosts.length && !plan?.whole ? `Removed the host from the export of ${v.alias}` : `Withdrew the export of ${v.alias}`}
      effect={plan?.whole ? `${hosts.length ? "No other host is admitted, so the export ends. " : ""}No host can connect any more. The volume and its data stay.` : "This host can no longer connect. The other hosts, the volume and its data stay."}
      again={async () => {
        const now = await read(), next = planOf(now);
        const more = losing(now, next).filter((h) => !cut.includes(h));
        if ((more.length > 0 || (now.blind && !found.blind)) && typed !== v.name) throw new Refusal(`${more[0] ? `Host ${more[0]} has connected` : "Which hosts are connected cannot be read"} meanwhile. Nothing was changed`);
        return next;
      }}
      after={async () => null}>
      <p class="mono wrap">{nqn}</p>
      {hosts.map((h) => <p key={h}>Host <span class="mono wrap">{h}</span></p>)}
      {ofDriver && <Field label="To change an export of the CSI driver, type its NQN">{(f) => <input {...f} class="mono" value={own} autocomplete="off" spellcheck={false} onInput={(e) => setOwn(e.currentTarget.value)} />}</Field>}
      {cut.length > 0 && <Alert level="bad">{cut.map((h) => <p key={h} class="wrap">Host {h} is connected, and would lose the volume and the data that it has not written yet.</p>)}<p>On the host, unmount the volume and disconnect (<code>nvme disconnect -n {nqn}</code>). Continue only if the host is lost.</p></Alert>}
      {found.blind && <Alert level="bad">Which hosts are connected cannot be read: <Failure error={found.blind} /> A connected host would lose the volume and the data that it has not written yet.</Alert>}
      {plan && !asks && <Alert level="good">No host that would lose the volume is connected.</Alert>}
      {asks && <Confirm name={v.name} typed={typed} onInput={setTyped} />}
    </PlanForm>
  );
}

// losing returns the connected hosts that would lose access in a withdrawal.
const losing = (l: Look, plan: Withdrawal | null) => (plan ? l.connected.filter((h) => plan.whole || plan.leaving.includes(h)) : []);
