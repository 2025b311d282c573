// The dialog that exports a volume over NVMe-oF, or adds hosts and addresses to its export.
import { useEffect, useMemo, useState } from "preact/hooks";
import * as format from "../format";
import { ExportState, Incomplete, Portal, connectCommands, driverPrefix, exporting, foreignTenants, parsePortal, portalText, portalsOf, readExportState, reportsANA, samePortal } from "../model/exports";
import { Key, Plan, Request, anyNQN, asExport, defaultNQN, defaultSerial, planExport, targetPortals, tenantAddresses, verify } from "../model/export_plan";
import { session } from "../model/session";
import { Volume, inventory } from "../model/storage";
import { useCell } from "../state";
import { Alert, Button, Code, Dialog, ErrorNote, Field } from "../ui/parts";
import { PlanForm } from "./plan_form";

interface Written {
  nqn: string; serial: string; hosts: string; anyHost: boolean; shared: boolean; picked: string[] | null; other: string; transport: string;
  key: string; secret: string; ctrlrKey: string; ctrlrSecret: string;
}

const words = (text: string) => text.split(/[\s,]+/).filter((w) => w);

const keyOf = (name: string, secret: string): Key | undefined => (name.trim() ? { name: name.trim(), secret: secret.trim() } : undefined);

const portalKey = (p: Portal) => `${p.transport} ${portalText(p)}`;

// requestOf reads the form. It throws an Incomplete if a value is wrong.
function requestOf(w: Written, s: ExportState): Request {
  const sub = exporting(s.subsystems, s.volume);
  const listen = [...targetPortals(s).filter((p) => w.picked?.includes(portalKey(p))), ...words(w.other).map((text) => parsePortal(w.transport, text))];
  if (!sub && w.picked?.length === 0 && listen.length === 0) throw new Incomplete("Choose an address at which hosts connect");
  if (w.secret.trim() && !w.key.trim()) throw new Incomplete("Name the key that has this secret");
  if (w.ctrlrSecret.trim() && !w.ctrlrKey.trim()) throw new Incomplete("Name the target's key that has this secret");
  let hosts = w.anyHost ? [] : [...new Set(words(w.hosts))], anyHost = w.anyHost;
  if (sub && hosts.length === 0 && !anyHost) { // only addresses are added
    hosts = sub.hosts.map((h) => h.nqn);
    anyHost = sub.allow_any_host;
  }
  return { nqn: w.nqn.trim(), serial: w.serial.trim(), hosts, anyHost, shared: w.shared, listen, key: keyOf(w.key, w.secret), ctrlrKey: keyOf(w.ctrlrKey, w.ctrlrSecret), release: session.value?.release ?? "" };
}

// planOf plans what the form requests. A refusal that no value in the form can change is shown before any missing values.
function planOf(w: Written, s: ExportState): { plan: Plan | null; request?: Request; problem?: Error } {
  try {
    const request = requestOf(w, s);
    if (request.hosts.length === 0 && !request.anyHost) planExport({ ...request, hosts: [anyNQN], shared: true }, s);
    return { plan: planExport(request, s), request };
  } catch (e) { return { plan: null, problem: e as Error }; }
}

// prefixesOf says with what the NQNs of the user's tenant begin.
function prefixesOf(s: ExportState): string {
  const name = session.value?.tenant, own = s.tenants.find((t) => t.own);
  if (!name) return "";
  const list = own ? [...own.nqn_prefixes, own.volume_nqn_prefix ?? ""].filter((p) => p) : [];
  return list.length > 0 ? ` The NQNs of tenant ${name} begin with ${list.join(", ")}.` : ` The NQNs of tenant ${name} begin with its prefix, which a refusal names.`;
}

// ExportVolume exports a volume or, if the volume is already exported, adds what is missing.
export function ExportVolume({ volume: v, onClose }: { volume: Volume; onClose: () => void }) {
  const [state, setState] = useState<ExportState | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [w, setWritten] = useState<Written>({ nqn: "", serial: "", hosts: "", anyHost: false, shared: false, picked: null, other: "", transport: "TCP", key: "", secret: "", ctrlrKey: "", ctrlrSecret: "" });
  const read = async () => {
    const now = await readExportState(v.id);
    setState(now);
    return now;
  };
  const look = () => { setError(null); void read().catch(setError); };
  useEffect(look, []);
  const planned = useMemo(() => (state ? planOf(w, state) : { plan: null }), [state, w]);
  const sub = state ? exporting(state.subsystems, state.volume) : undefined;
  const title = sub ? `Change the export of ${v.name}` : `Export ${v.name}`;
  if (!state) return <Dialog title={title} onClose={onClose} wide>{error ? <ErrorNote error={error} retry={look} /> : <p>Reading exports…</p>}<footer><Button onClick={onClose}>Cancel</Button></footer></Dialog>;
  const { plan, request, problem } = planned;
  const put = (some: Partial<Written>) => setWritten((old) => ({ ...old, ...some }));
  return (
    <PlanForm title={title} action={sub ? "Change the export" : "Export"} plan={plan} problem={problem} command={plan && request ? asExport(plan, request) : ""} onClose={onClose} done={`${sub ? "Changed the export of" : "Exported"} ${v.alias}`}
      effect={sub ? <>The hosts that are connected stay connected.{request?.listen.length ? " Hosts can connect at the new addresses at once." : ""}</> :
        <>{plan?.anyHost ? "Every host that reaches an address" : format.plural(plan?.hosts.length ?? 0, "host")} can connect after the last call. The export has ANA reporting, so snapshots are possible while a host uses the volume. Hosts need native NVMe multipath: others get I/O errors during a snapshot.</>}
      again={async () => { const now = await read(); return planExport(requestOf(w, now), now); }}
      after={async (p) => <Exported plan={p} wrong={await verify(p).catch((e) => `All calls were made, but the export could not be read back: ${e.message}`)} />}>
      {sub ? <>
        <p class="mono wrap">{sub.nqn}</p>
        {!reportsANA(sub) && <Alert level="warn">This export has no ANA reporting: no snapshot of the volume is possible while a host is connected.</Alert>}
        {sub.nqn.startsWith(driverPrefix) && <Field label="To change an export of the CSI driver, type its NQN">{(f) => <input {...f} class="mono" value={w.nqn} autocomplete="off" spellcheck={false} onInput={(e) => put({ nqn: e.currentTarget.value })} />}</Field>}
      </> : <>
        <Field label="NQN" hint={<>{defaultNQN(state) && <>Empty for <span class="mono wrap">{defaultNQN(state)}</span>. </>}If the value ends with a colon, the volume's UUID follows.{prefixesOf(state)}</>}>{(f) => <input {...f} class="mono" value={w.nqn} autocomplete="off" spellcheck={false} onInput={(e) => put({ nqn: e.currentTarget.value })} />}</Field>
        <Field label="Serial number" hint="Hosts show it. Empty for the number shown, the first 20 digits of the UUID.">{(f) => <input {...f} class="mono" value={w.serial} placeholder={defaultSerial(state.volume)} maxLength={20} autocomplete="off" spellcheck={false} onInput={(e) => put({ serial: e.currentTarget.value })} />}</Field>
      </>}
      <Hosts w={w} put={put} adding={!!sub} />
      {sub && sub.hosts.length > 0 && (words(w.hosts).length > 0 || w.anyHost && !sub.allow_any_host) && <label class="check"><input type="checkbox" checked={w.shared} onChange={(e) => put({ shared: e.currentTarget.checked })} /> Share the volume with the {format.plural(sub.hosts.length, "host")} admitted already: all use a cluster file system</label>}
      <Addresses w={w} put={put} state={state} taken={sub ? portalsOf(sub) : []} />
      {!w.anyHost && <Keys w={w} put={put} keys={state.keys} />}
    </PlanForm>
  );
}

type Part = { w: Written; put: (some: Partial<Written>) => void };

function Hosts({ w, put, adding }: Part & { adding: boolean }) {
  const all = useCell(inventory);
  const known = useMemo(() => [...new Set((all?.subsystems ?? []).flatMap((s) => s.hosts.map((h) => h.nqn)))].filter((h) => !words(w.hosts).includes(h)).sort(format.byName()).slice(0, 500), [all, w.hosts]);
  return (
    <fieldset class="group"><legend>Hosts</legend>
      <label class="check"><input type="radio" name="hosts" checked={!w.anyHost} onChange={() => put({ anyHost: false })} /> {adding ? "Add these hosts" : "Only these hosts"}</label>
      {!w.anyHost && <>
        <Field label="NQNs of hosts" hint={`One on each line: the content of /etc/nvme/hostnqn of the host.${adding ? " Empty to add only addresses." : ""}`}>{(f) => <textarea {...f} class="mono" rows={3} spellcheck={false} value={w.hosts} onInput={(e) => put({ hosts: e.currentTarget.value })} />}</Field>
        {known.length > 0 && <Field label="Hosts of other exports">{(f) => <select {...f} value="" onChange={(e) => { if (e.currentTarget.value) put({ hosts: [...words(w.hosts), e.currentTarget.value].join("\n") }); }}><option value="">Choose a host to add it</option>{known.map((h) => <option key={h} value={h}>{h}</option>)}</select>}</Field>}
      </>}
      <label class="check"><input type="radio" name="hosts" checked={w.anyHost} onChange={() => put({ anyHost: true })} /> Any host: no host is checked</label>
      {w.anyHost && <Alert level="warn">"Any host" means that every machine that reaches one of the addresses can connect, read all data of the volume, and overwrite it. Only the network keeps other machines away.</Alert>}
    </fieldset>
  );
}

function Addresses({ w, put, state, taken }: Part & { state: ExportState; taken: Portal[] }) {
  const offered = targetPortals(state), fresh = offered.filter((p) => !taken.some((t) => samePortal(t, p)));
  const foreign = (p: Portal) => foreignTenants(p, state);
  const chosen = (p: Portal) => w.picked?.includes(portalKey(p)) ?? (taken.length === 0 && foreign(p).length === 0 && !w.anyHost && words(w.other).length === 0);
  const toggle = (p: Portal, on: boolean) => put({ picked: fresh.filter((o) => (samePortal(o, p) ? on : chosen(o))).map(portalKey) });
  return (
    <fieldset class="group"><legend>Addresses</legend>
      {taken.length > 0 && <p class="hint">Hosts connect at {taken.map(portalKey).join(", ")}.</p>}
      {fresh.map((p) => <label key={portalKey(p)} class="check"><input type="checkbox" checked={chosen(p)} onChange={(e) => toggle(p, e.currentTarget.checked)} /> {portalKey(p)}{foreign(p).length > 0 && ` (tenant ${foreign(p).join(", ")})`}</label>)}
      {offered.length === 0 && <p class="hint">You see no address at which the target listens.{tenantAddresses(state) && ` Addresses of ${tenantAddresses(state)}.`}</p>}
      <Field label="Other addresses of the storage server" hint="Such as 192.0.2.11:4420 or [2001:db8::11]:4420, with spaces between several.">{(f) => (
        <div class="joined"><input {...f} class="mono" value={w.other} autocomplete="off" spellcheck={false} onInput={(e) => put({ other: e.currentTarget.value })} />
          <select aria-label="Transport" value={w.transport} onChange={(e) => put({ transport: e.currentTarget.value })}><option>TCP</option><option>RDMA</option></select></div>)}</Field>
    </fieldset>
  );
}

function Keys({ w, put, keys }: Part & { keys: Set<string> | null }) {
  const names = [...(keys ?? [])].sort(format.byName());
  const secretHint = "Empty for a key that the keyring has. Otherwise the line that nvme gen-dhchap-key writes; the key is added.";
  const isNew = (name: string) => name.trim() !== "" && !(keys?.has(name.trim()) ?? false);
  return (
    <details class="group"><summary>Authentication (DH-HMAC-CHAP)</summary>
      <datalist id="export-keys">{names.map((n) => <option key={n} value={n} />)}</datalist>
      <Field label="Key of the hosts" hint="A name in the target's keyring. Hosts then connect only with this key.">{(f) => <input {...f} class="mono" list="export-keys" value={w.key} autocomplete="off" spellcheck={false} onInput={(e) => put({ key: e.currentTarget.value })} />}</Field>
      {isNew(w.key) && <Field label="Secret of the hosts' key" hint={secretHint}>{(f) => <input {...f} type="password" value={w.secret} autocomplete="new-password" onInput={(e) => put({ secret: e.currentTarget.value })} />}</Field>}
      <Field label="Key of the target" hint="Optional: the target then also authenticates to the hosts.">{(f) => <input {...f} class="mono" list="export-keys" value={w.ctrlrKey} autocomplete="off" spellcheck={false} onInput={(e) => put({ ctrlrKey: e.currentTarget.value })} />}</Field>
      {isNew(w.ctrlrKey) && <Field label="Secret of the target's key" hint={secretHint}>{(f) => <input {...f} type="password" value={w.ctrlrSecret} autocomplete="new-password" onInput={(e) => put({ ctrlrSecret: e.currentTarget.value })} />}</Field>}
    </details>
  );
}

// Exported shows how hosts connect.
function Exported({ plan: p, wrong }: { plan: Plan; wrong: string }) {
  return (
    <>
      {wrong ? <Alert level="bad">{wrong}</Alert> : <Alert level="good"><p>{p.volume.name} is exported as <span class="mono wrap">{p.nqn}</span></p></Alert>}
      <p>Command on the host:</p>
      <Code label="the command" text={connectCommands(p.nqn, p.portals).join("\n")} />
      {p.hosts.length > 0 && <p>/etc/nvme/hostnqn on the host contains: <span class="mono wrap">{p.hosts.join(" or ")}</span></p>}
      {p.authenticates && <p>The host authenticates with its key: set <code>dhchap_key</code> in <code>/etc/nvme/config.json</code>. Other users of the host can read the argument of <code>--dhchap-secret</code> while <code>nvme connect</code> runs.</p>}
    </>
  );
}
