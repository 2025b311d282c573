// This module plans the calls that export a volume, change its export or withdraw it. spdk-proxy export and unexport make the same calls in
// the same order, after the same checks.
import { call } from "../api";
import { ExportState, Exported, Incomplete, Portal, Refusal, checkNamed, driverPrefix, exporting, foreignTenants, isVolume, portalText, portalsOf, readSubsystems, reportsANA, samePortal } from "./exports";
import { shellWord } from "./shell";
import { Step, Undo } from "./steps";
import { Subsystem } from "./storage";

// uuidPrefix is the prefix of NQNs that contain a UUID, which makes them unique without a domain name.
const uuidPrefix = "nqn.2014-08.org.nvmexpress:uuid:";

// A Key is a DH-HMAC-CHAP key in the target's keyring. The secret is empty if the key is already in the keyring.
export interface Key { name: string; secret: string }

export interface Request {
  nqn: string; // if it ends with a colon, the volume's UUID is appended; "" means the existing export's NQN, or one derived from the UUID
  serial: string; // "" means one derived from the UUID
  hosts: string[];
  anyHost: boolean;
  shared: boolean; // hosts may be admitted in addition to those already admitted
  listen: Portal[]; // empty means the existing export's addresses or, for a new export, all at which the target listens, except those of tenants that do not own the volume
  key?: Key;
  ctrlrKey?: Key;
  release: string; // of the target; "" if unknown
}

export interface Plan {
  volume: Exported;
  nqn: string;
  steps: Step[];
  warnings: string[]; // consequences that a person must know about before the calls are made
  portals: Portal[]; // addresses at which hosts connect
  hosts: string[];
  anyHost: boolean;
  authenticates: boolean; // the hosts need a key
}

const noUUID = "00000000-0000-0000-0000-000000000000";

// anyNQN is a valid NQN, for requests whose hosts do not matter yet.
export const anyNQN = uuidPrefix + noUUID;

const refuse = (text: string): never => { throw new Refusal(`${text}. Nothing was changed`); };

const fullNQN = (nqn: string, v: Exported) => (nqn.endsWith(":") ? nqn + v.uuid : nqn);

// defaultNQN returns the NQN for a new export, as newNQN does in proxy/exports, or "" if the user must choose one.
export function defaultNQN({ volume, tenants }: ExportState): string {
  const own = tenants.find((t) => t.own), prefix = own?.volume_nqn_prefix;
  if (prefix && prefix !== driverPrefix) return prefix + volume.uuid;
  if (own?.nqn_prefixes.length === 1) return own.nqn_prefixes[0] + volume.uuid;
  return own?.nqn_prefixes.length === 0 && prefix ? "" : uuidPrefix + volume.uuid;
}

export const defaultSerial = (v: { uuid: string }) => v.uuid.replaceAll("-", "").slice(0, 20);

// hasHostKeys reports whether a release authenticates hosts: it has the capability ChangesHostKeys in rpcschema/capability.go.
function hasHostKeys(release: string): boolean {
  const found = /^v?(\d+)\.(\d+)/.exec(release);
  return !found || Number(found[1]) * 100 + Number(found[2]) >= 2409;
}

const uuidForm = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const label = "[A-Za-z](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?";
const nqnForm = new RegExp(`^nqn\\.[0-9]{4}-[0-9]{2}\\.${label}(?:\\.${label})*:.+$`, "s");

// validNQN reports whether SPDK accepts an NQN, as ValidNQN does in rpcschema/nqn.go.
const validNQN = (nqn: string) => new TextEncoder().encode(nqn).length <= 223 &&
  (nqn.startsWith(uuidPrefix) ? uuidForm.test(nqn.slice(uuidPrefix.length)) : nqnForm.test(nqn));

function check(r: Request) {
  const incomplete = (text: string): never => { throw new Incomplete(text); };
  for (const h of r.hosts) if (!validNQN(h)) incomplete(`${h} is not the NQN of a host, which /etc/nvme/hostnqn of the host contains`);
  if (r.hosts.length === 0 && !r.anyHost) incomplete("Name the hosts that may connect, or permit any host");
  if (r.anyHost && r.key) incomplete("Keys belong to hosts: name the hosts that authenticate, instead of permitting any host");
  if (r.ctrlrKey && !r.key) incomplete("The target authenticates only to hosts that authenticate themselves: give a key for the hosts");
  if (r.nqn && !validNQN(r.nqn.endsWith(":") ? r.nqn + noUUID : r.nqn)) incomplete(`${r.nqn} is not an NQN: use nqn.YEAR-MONTH.DOMAIN:NAME, such as nqn.2024-01.com.example:vol1`);
  if (r.key && !hasHostKeys(r.release)) refuse(`SPDK ${r.release} does not authenticate hosts: upgrade it, or export the volume without a key`);
}

// planExport plans an export. It throws a Refusal or an Incomplete if the request must not be carried out.
export function planExport(r: Request, s: ExportState): Plan {
  check(r);
  const v = s.volume;
  if (s.offeredBy) refuse(`${s.offeredBy} offers ${v.name} already: the users of both would overwrite each other's data`);
  const sub = exporting(s.subsystems, v), requested = fullNQN(r.nqn, v);
  const p: Plan = { volume: v, nqn: requested || defaultNQN(s), steps: [], warnings: [], portals: [], hosts: r.hosts, anyHost: r.anyHost, authenticates: !!r.key };
  if (!sub && !p.nqn) refuse(`Your tenant can export ${v.name} only as ${driverPrefix}${v.uuid}, which is a name of the CSI driver's exports: if Kubernetes has no PersistentVolume for the volume, enter ${driverPrefix} as the NQN`);
  if (!sub) planNew(p, r, s);
  else {
    checkNamed(sub, v, requested);
    p.nqn = sub.nqn;
    planChange(p, r, s, sub);
  }
  return p;
}

// planNew adds the steps for a new export. The listeners come last, so that no host can connect before the export is complete.
function planNew(p: Plan, r: Request, s: ExportState) {
  const v = s.volume, serial = r.serial || defaultSerial(v), there = s.subsystems.find((o) => o.nqn === p.nqn);
  // If an export of this volume is interrupted before it adds the namespace, it leaves a subsystem with these properties.
  const leftover = !!there && there.nqn.endsWith(v.uuid) && there.serial_number === serial && (there.namespaces?.length ?? 0) + there.hosts.length + there.listen_addresses.length === 0;
  if (there && !leftover) refuse(`There is a subsystem ${p.nqn} that does not export ${v.name}: choose another NQN, or delete the subsystem in the explorer (nvmf_delete_subsystem)`);
  if (v.claimed) refuse(`${v.name} is in use (claimed) by another bdev of the target, or by an export that you must not see`);
  listenAt(p, r, s);
  addKeys(p, r, s);
  const transports = new Set(p.portals.map((at) => at.transport));
  for (const trtype of transports) if (s.transports && !s.transports.has(trtype)) p.steps.push({ method: "nvmf_create_transport", params: { trtype }, stays: true }); // SPDK cannot delete a transport
  if (leftover) {
    p.steps.push({ method: "nvmf_delete_subsystem", params: { nqn: p.nqn }, stays: true });
    p.warnings.push(`${p.nqn} exists without namespaces, hosts and listeners, as an interrupted export leaves it. It is deleted first.`);
  }
  p.steps.push({
    method: "nvmf_create_subsystem", params: { nqn: p.nqn, serial_number: serial, max_namespaces: 1, allow_any_host: r.anyHost, ana_reporting: true },
    undo: ownDeletion(p.nqn, r, v), // which covers the steps below
  });
  p.steps.push({ method: "nvmf_subsystem_add_ns", params: { nqn: p.nqn, namespace: { bdev_name: v.uuid, nsid: 1, nguid: v.uuid.replaceAll("-", ""), uuid: v.uuid } } });
  for (const host of r.hosts) p.steps.push({ method: "nvmf_subsystem_add_host", params: admission(p.nqn, host, r) });
  for (const at of p.portals) p.steps.push({ method: "nvmf_subsystem_add_listener", params: listener(p.nqn, at) });
  warn(p, r, s, r.hosts.length);
}

// planChange adds the steps that bring an existing export to the requested state.
function planChange(p: Plan, r: Request, s: ExportState, sub: Subsystem) {
  const v = s.volume, again = "withdraw the export, then export the volume again";
  if (!reportsANA(sub)) refuse(`${sub.nqn} exports ${v.name} without ANA reporting, which SPDK cannot add: no snapshot would be possible while a host is connected. To mend this, ${again}`);
  if (r.serial && sub.serial_number !== r.serial) refuse(`${sub.nqn} has a different serial number, which cannot be changed: ${again}`);
  if (sub.allow_any_host && !r.anyHost) refuse(`${sub.nqn} admits every host, so naming hosts would exclude no other host: ${again}`);
  const missing = r.hosts.filter((h) => !sub.hosts.some((o) => o.nqn === h));
  for (const h of sub.hosts.filter((o) => r.hosts.includes(o.nqn))) {
    if ((r.key && h.dhchap_key !== r.key.name) || (r.ctrlrKey && h.dhchap_ctrlr_key !== r.ctrlrKey.name)) refuse(`Host ${h.nqn} is admitted to ${sub.nqn} with different keys or without keys: remove the host, then add it again`);
    p.authenticates ||= h.dhchap_key !== undefined;
  }
  const others = sub.hosts.filter((h) => !r.hosts.includes(h.nqn));
  if ((missing.length > 0 || r.anyHost && !sub.allow_any_host) && others.length > 0 && !r.shared) refuse(`${v.name} is exported to host ${others[0].nqn}: two hosts that write at the same time destroy any file system except a cluster file system. Remove that host, or share the volume`);
  listenAt(p, r, s, sub);
  if (missing.length > 0) addKeys(p, r, s);
  for (const host of missing) p.steps.push({ method: "nvmf_subsystem_add_host", params: admission(p.nqn, host, r), undo: { method: "nvmf_subsystem_remove_host", params: { nqn: p.nqn, host } } });
  if (r.anyHost && !sub.allow_any_host) {
    p.steps.push({ method: "nvmf_subsystem_allow_any_host", params: { nqn: p.nqn, allow_any_host: true }, undo: { method: "nvmf_subsystem_allow_any_host", params: { nqn: p.nqn, allow_any_host: false } } });
  }
  const there = portalsOf(sub);
  for (const at of p.portals.filter((o) => !there.some((t) => samePortal(t, o)))) {
    if (s.transports && !s.transports.has(at.transport)) refuse(`The target has no transport ${at.transport}: create it first in the explorer (nvmf_create_transport)`);
    p.steps.push({ method: "nvmf_subsystem_add_listener", params: listener(p.nqn, at), undo: { method: "nvmf_subsystem_remove_listener", params: listener(p.nqn, at) } });
  }
  warn(p, r, s, others.length + r.hosts.length);
}

// tenantAddresses lists the addresses that the user's tenant may use, or is "".
export function tenantAddresses(s: ExportState): string {
  const own = s.tenants.find((t) => t.own);
  return own && own.addresses.length > 0 ? `tenant ${own.name}: ${own.addresses.join(", ")}` : "";
}

// listenAt chooses the addresses at which hosts connect.
function listenAt(p: Plan, r: Request, s: ExportState, sub?: Subsystem) {
  const add = (list: Portal[]) => p.portals.push(...known(list).filter((at, i, all) => !p.portals.some((o) => samePortal(o, at)) && all.findIndex((o) => samePortal(o, at)) === i));
  if (sub) add(portalsOf(sub));
  add(r.listen);
  if (p.portals.length > 0) return;
  if (r.anyHost) refuse("Choose an address: if any host may connect, only the network of the address limits who reaches the volume");
  const offered = targetPortals(s);
  add(offered.filter((at) => foreignTenants(at, s).length === 0));
  if (p.portals.length === 0 && offered.length > 0) refuse(`The target listens only at addresses of tenants to which ${s.volume.name} does not belong: choose or name an address`);
  if (p.portals.length === 0) refuse(`You see no address at which the target listens: name an address of ${tenantAddresses(s) || "the storage server"}`);
}

const known = (list: Portal[]) => list.filter((at) => at.transport === "TCP" || at.transport === "RDMA");

// targetPortals returns the addresses at which the target listens, as far as the user may see them.
export function targetPortals(s: ExportState): Portal[] {
  const all = known([...s.subsystems.flatMap(portalsOf), ...s.discovery]);
  return all.filter((at, i) => all.findIndex((o) => samePortal(o, at)) === i);
}

// addKeys adds the steps that put keys into the keyring.
function addKeys(p: Plan, r: Request, s: ExportState) {
  for (const k of [r.key, r.ctrlrKey]) {
    if (!k) continue;
    if (k.secret === "") {
      if (s.keys && !s.keys.has(k.name)) refuse(`There is no key ${k.name} in the target's keyring: give its secret, too`);
      continue;
    }
    // An existing key is kept: the proxy accepts the call only if the secret is the same.
    const undo = s.keys && !s.keys.has(k.name) ? { method: "spdkgate_key_remove", params: { name: k.name } } : undefined;
    p.steps.push({ method: "spdkgate_key_add", params: { name: k.name, secret: k.secret }, shown: { name: k.name, secret: "[redacted]" }, undo });
  }
}

const admission = (nqn: string, host: string, r: Request) =>
  ({ nqn, host, ...(r.key ? { dhchap_key: r.key.name } : {}), ...(r.ctrlrKey ? { dhchap_ctrlr_key: r.ctrlrKey.name } : {}) });

const listener = (nqn: string, at: Portal) =>
  ({ nqn, listen_address: { trtype: at.transport, adrfam: at.addr.includes(":") ? "IPv6" : "IPv4", traddr: at.addr, trsvcid: at.port } });

// ownDeletion returns the call that deletes a subsystem created by a plan, unless another user has changed it.
function ownDeletion(nqn: string, r: Request, v: Exported): Undo {
  return {
    method: "nvmf_delete_subsystem", params: { nqn },
    check: async () => {
      for (const sub of await call<Subsystem[]>("nvmf_get_subsystems", { nqn })) {
        const foreign = (sub.namespaces ?? []).some((n) => !isVolume(v, n.bdev_name ?? n.name)) || sub.hosts.some((h) => !r.hosts.includes(h.nqn));
        if (foreign) throw new Refusal(`another user has changed ${nqn} meanwhile: delete it if nobody needs it`);
      }
    },
  };
}

// warn adds warnings about an export's consequences.
function warn(p: Plan, r: Request, s: ExportState, hosts: number) {
  warnDriver(p);
  if (s.unread.length > 0) p.warnings.push(`You must not read other exports (${s.unread.join(", ")}): make sure that none of them offers the volume, because two users would overwrite each other's data.`);
  if (r.anyHost) p.warnings.push(`Any host that reaches ${p.portals.map(portalText).join(", ")} can connect, and read and overwrite the volume: only the network keeps other hosts away.`);
  if (hosts > 1) p.warnings.push(`${hosts} hosts are admitted: two hosts that write at the same time destroy any file system except a cluster file system.`);
  if (s.volume.snapshot) p.warnings.push("The volume is a snapshot: hosts can only read it.");
}

function warnDriver(p: Plan) {
  if (p.nqn.startsWith(driverPrefix)) p.warnings.push(`${p.nqn} is a name of the CSI driver's exports: if Kubernetes has a PersistentVolume for this volume, the driver changes the export, too.`);
}

export interface Withdrawal extends Plan {
  whole: boolean; // the export ends
  leaving: string[]; // if the export does not end, the hosts that lose access
}

// planWithdrawal plans the withdrawal of an export, or of some of its hosts. If no host would remain, the export ends. The caller must
// determine whether a host that would lose the volume is connected.
export function planWithdrawal(v: Exported, subsystems: Subsystem[], hosts: string[], nqn: string): Withdrawal {
  const sub = exporting(subsystems, v) ?? refuse(`${v.name} is no longer exported over NVMe-oF`);
  checkNamed(sub, v, fullNQN(nqn, v));
  if (hosts.length > 0 && sub.allow_any_host) refuse(`${sub.nqn} admits every host, so no single host can be removed: withdraw the whole export`);
  const leaving = hosts.filter((h) => sub.hosts.some((o) => o.nqn === h));
  if (hosts.length > 0 && leaving.length === 0) refuse(`${hosts.join(", ")} is no longer admitted to ${sub.nqn}`);
  const whole = hosts.length === 0 || leaving.length === sub.hosts.length;
  const p: Withdrawal = { volume: v, nqn: sub.nqn, steps: [], warnings: [], portals: [], hosts: leaving, anyHost: false, authenticates: false, whole, leaving };
  warnDriver(p);
  if (whole) p.steps.push({ method: "nvmf_delete_subsystem", params: { nqn: sub.nqn } });
  else for (const host of leaving) p.steps.push({ method: "nvmf_subsystem_remove_host", params: { nqn: sub.nqn, host }, stays: true });
  const keys = [...new Set(sub.hosts.filter((h) => whole || leaving.includes(h.nqn)).flatMap((h) => h.dhchap_key ?? []))];
  if (keys.length > 0) p.warnings.push(`The target's keyring keeps these keys: ${keys.join(", ")}. Remove those that no export needs, in the explorer (spdkgate_key_remove).`);
  return p;
}

// verify reads an export back. It returns how the export differs from its plan, or "" if it does not.
export async function verify(p: Plan): Promise<string> {
  const { subsystems } = await readSubsystems(), sub = subsystems.find((s) => s.nqn === p.nqn);
  const wrong = !sub || exporting([sub], p.volume) !== sub ? `does not export ${p.volume.name}` : sub.allow_any_host !== p.anyHost ? "does not admit the same hosts" :
    p.hosts.filter((h) => !sub.hosts.some((o) => o.nqn === h)).map((h) => `does not admit host ${h}`)[0] ??
    p.portals.filter((at) => !portalsOf(sub).some((o) => samePortal(o, at))).map((at) => `does not listen at ${portalText(at)}`)[0];
  return wrong ? `Another user changed the export at the same time: ${p.nqn} ${wrong}. Check it.` : "";
}

// asExport returns the spdk-proxy command that makes the same calls.
export function asExport(p: Plan, r: Request): string {
  if (new Set(r.listen.map((at) => at.transport)).size > 1) return "# spdk-proxy export takes addresses of one transport: export the volume with these, then repeat the command with the others.";
  const words = [`spdk-proxy export ${shellWord(p.volume.name)}`];
  if (r.nqn) words.push(`--nqn ${shellWord(r.nqn)}`);
  if (r.serial) words.push(`--serial ${shellWord(r.serial)}`);
  for (const h of r.hosts) words.push(`--host ${shellWord(h)}`);
  if (r.anyHost) words.push("--any-host");
  if (r.shared) words.push("--shared");
  for (const at of r.listen) words.push(`--listen ${shellWord(portalText(at))}`);
  if (r.listen.length > 0 && r.listen[0].transport !== "TCP") words.push(`--transport ${r.listen[0].transport.toLowerCase()}`);
  for (const [flag, k] of [["--dhchap-key", r.key], ["--dhchap-ctrlr-key", r.ctrlrKey]] as const) if (k) words.push(`${flag} ${shellWord(k.secret ? `${k.name}=@${k.name}.key` : k.name)}`);
  return words.join(" \\\n  ");
}

export function asUnexport(p: Withdrawal, hosts: string[], nqn: string, disconnect: boolean): string {
  const words = [`spdk-proxy unexport ${shellWord(p.volume.name)}`];
  if (nqn) words.push(`--nqn ${shellWord(nqn)}`);
  for (const h of hosts) words.push(`--host ${shellWord(h)}`);
  if (disconnect) words.push("--disconnect");
  return words.join(" \\\n  ");
}
