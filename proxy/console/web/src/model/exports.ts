// This module reads the state of the target on which an NVMe-oF export depends. spdk-proxy export reads and checks the same state.
import { call } from "../api";
import { loadPresent, present } from "./document";
import { allowed } from "./session";
import { Address, Subsystem, TargetNode } from "./storage";
import { Tenant, method as tenantsMethod } from "./tenant";
import { refused, unknowable } from "./steps";
import { shellWord } from "./shell";

// driverPrefix is the prefix of the NQNs of exports created by the CSI driver.
export const driverPrefix = "nqn.2020-04.io.spdk.csi:uuid:";

// A Refusal means that the target's state does not allow a request. Nothing was changed.
export class Refusal extends Error {}

// An Incomplete means that a request is invalid for every target, often because the form has not been filled in yet.
export class Incomplete extends Error {}

export interface Portal { transport: string; addr: string; port: string } // the transport is in capital letters

export interface Exported { name: string; uuid: string; snapshot: boolean; claimed: boolean }

export const isVolume = (v: Exported, bdev: string | undefined) => bdev === v.uuid || bdev === v.name;

export interface ExportState {
  volume: Exported;
  subsystems: Subsystem[]; // without the discovery subsystem
  discovery: Portal[];
  offeredBy: string; // another export of the volume, such as an iSCSI target; "" if the user cannot see any
  unread: string[]; // kinds of other exports that the user is not permitted to read
  transports: Set<string> | null; // null if unknown
  keys: Set<string> | null;
  tenants: Tenant[]; // as far as the user may see them
}

interface Bdev { name: string; uuid?: string; aliases?: string[]; claimed: boolean; driver_specific?: { lvol?: { snapshot?: boolean } } }

// forbidden and missing report whether a call is known to fail: the user is not permitted to make it, or the target was built without the
// method. The page does not make such calls, because each would be a failed call in the audit log.
const forbidden = (method: string) => allowed.value !== null && !allowed.value.has(method);
const missing = (method: string) => present.value !== null && !present.value.has(method);

// orUnknown makes a call. It returns undefined if the user is not permitted to make the call, or if the target lacks the method.
async function orUnknown<T>(method: string): Promise<T | undefined> {
  if (forbidden(method) || missing(method)) return undefined;
  try {
    return await call<T>(method);
  } catch (e) {
    if (unknowable(e as Error)) return undefined;
    throw e;
  }
}

async function volumeOf(id: string): Promise<Exported> {
  const [b] = await call<Bdev[]>("bdev_get_bdevs", { name: id });
  if (!b?.driver_specific?.lvol) throw new Refusal(`${id} is not a logical volume. Nothing was changed`);
  return { name: b.aliases?.[0] ?? b.name, uuid: b.uuid ?? b.name, snapshot: b.driver_specific.lvol.snapshot ?? false, claimed: b.claimed };
}

export async function readSubsystems(): Promise<{ subsystems: Subsystem[]; discovery: Portal[] }> {
  const all = await call<Subsystem[]>("nvmf_get_subsystems");
  return { subsystems: all.filter((s) => s.subtype !== "Discovery"), discovery: all.filter((s) => s.subtype === "Discovery").flatMap(portalsOf) };
}

// readExportState reads everything on which a plan to export a volume depends.
export async function readExportState(id: string): Promise<ExportState> {
  const [volume, found] = await Promise.all([volumeOf(id), readSubsystems(), loadPresent()]);
  const [others, tenants, transports, keys] = await Promise.all([
    readOthers(volume), readTenants(), orUnknown<{ trtype: string }[]>("nvmf_get_transports"), orUnknown<{ name: string; removed?: boolean }[]>("keyring_get_keys"),
  ]);
  return {
    volume, ...found, ...others, tenants,
    transports: transports ? new Set(transports.map((t) => t.trtype.toUpperCase())) : null,
    keys: keys ? new Set(keys.filter((k) => !k.removed).map((k) => k.name)) : null,
  };
}

async function readTenants(): Promise<Tenant[]> {
  if (!allowed.value || forbidden(tenantsMethod)) return [];
  try {
    return await call<Tenant[]>(tenantsMethod);
  } catch (e) {
    if (unknowable(e as Error)) return [];
    throw e;
  }
}

// foreignTenants returns the names of the tenants to which an address belongs, unless one of them owns the volume. proxy/exports decides in
// the same way.
export function foreignTenants(at: Portal, s: ExportState): string[] {
  const list = s.tenants.filter((t) => t.addresses.some((a) => ip(a) === at.addr || isPort(a, at)));
  return list.some((t) => t.lvstores.includes(s.volume.name.split("/")[0])) ? [] : list.map((t) => t.name);
}

// isPort reports whether the text is the address with its port.
function isPort(text: string, at: Portal): boolean {
  const found = /^(?:\[([^\]]+)\]|([^:]+)):(\d+)$/.exec(text);
  return found !== null && ip(found[1] ?? found[2]) === at.addr && found[3] === at.port;
}

export async function readWithdrawalState(id: string): Promise<{ volume: Exported; subsystems: Subsystem[] }> {
  const [volume, { subsystems }] = await Promise.all([volumeOf(id), readSubsystems()]);
  return { volume, subsystems };
}

interface Vhost { ctrlr: string; backend_specific?: { block?: { bdev: string | null }; scsi?: { luns: { bdev_name: string }[] }[] } }

// readOthers finds what exposes a volume other than NVMe-oF. Most of these do not claim the volume, so SPDK would export it a second time.
async function readOthers(v: Exported): Promise<{ offeredBy: string; unread: string[] }> {
  const of = (bdev: string | null | undefined) => isVolume(v, bdev ?? undefined);
  const kinds: [name: string, method: string, find: (list: never[]) => string | undefined][] = [
    ["iSCSI", "iscsi_get_target_nodes", (list: TargetNode[]) => named("the iSCSI target", list.find((n) => n.luns.some((l) => of(l.bdev_name)))?.name)],
    ["nbd", "nbd_get_disks", (list: { nbd_device: string; bdev_name: string }[]) => named("the storage server's block device", list.find((d) => of(d.bdev_name))?.nbd_device)],
    ["ublk", "ublk_get_disks", (list: { ublk_device: string; bdev_name: string }[]) => named("the storage server's block device", list.find((d) => of(d.bdev_name))?.ublk_device)],
    ["vhost", "vhost_get_controllers", (list: Vhost[]) => named("the vhost controller", list.find((c) => of(c.backend_specific?.block?.bdev) || (c.backend_specific?.scsi ?? []).some((d) => d.luns.some((l) => of(l.bdev_name))))?.ctrlr)],
  ];
  const unread: string[] = [];
  const found = await Promise.all(kinds.map(async ([name, method, find]) => {
    if (missing(method)) return undefined;
    if (forbidden(method)) {
      unread.push(name);
      return undefined;
    }
    try {
      return find(await call<never[]>(method));
    } catch (e) {
      if (refused(e as Error)) unread.push(name);
      else if (!unknowable(e as Error)) throw e;
      return undefined;
    }
  }));
  return { offeredBy: found.find((f) => f) ?? "", unread };
}

const named = (kind: string, name: string | undefined) => (name === undefined ? undefined : `${kind} ${name}`);

// connectedHosts returns the NQNs of the hosts connected to a subsystem. To report them, SPDK pauses the subsystem's admin commands.
export async function connectedHosts(nqn: string): Promise<string[]> {
  const list = await call<{ hostnqn: string }[]>("nvmf_subsystem_get_controllers", { nqn });
  return [...new Set(list.map((c) => c.hostnqn))].sort();
}

// exporting returns the subsystem that exports a volume.
export const exporting = (subsystems: Subsystem[], v: Exported) => subsystems.find((s) => (s.namespaces ?? []).some((n) => isVolume(v, n.bdev_name ?? n.name)));

// reportsANA reports whether a subsystem reports ANA for its namespaces. Without ANA, the proxy cannot freeze volumes in use for snapshots.
export const reportsANA = (s: Subsystem) => (s.namespaces ?? []).every((n) => n.anagrpid !== undefined);

// checkNamed throws a Refusal if the subsystem's name differs from the requested one, if the subsystem also exports other volumes, or if it
// belongs to the CSI driver and the request does not name it.
export function checkNamed(sub: Subsystem, v: Exported, requested: string) {
  if (requested && sub.nqn !== requested) throw new Refusal(`${v.name} is exported as ${sub.nqn}, not as ${requested}. Nothing was changed`);
  if (sub.nqn.startsWith(driverPrefix) && !requested) throw new Refusal(`${v.name} is exported as ${sub.nqn}, which is a name of the CSI driver: Kubernetes decides which hosts use such a volume. If the driver does not manage this volume, type the export's NQN. Nothing was changed`);
  const count = sub.namespaces?.length ?? 0;
  if (count > 1) throw new Refusal(`${sub.nqn} exports ${count} bdevs, and its hosts reach all of them: change it with individual calls in the explorer. Nothing was changed`);
}

// ip returns an IP address in the spelling that is sent to SPDK, because an address can be written in several ways. It returns "" if the
// text is not an IP address.
export function ip(text: string): string {
  const parts = text.split(".");
  if (parts.length === 4 && parts.every((p) => /^(0|[1-9]\d{0,2})$/.test(p) && Number(p) < 256)) return text;
  if (!text.includes(":") || !/^[0-9A-Fa-f:.]+$/.test(text)) return "";
  try { return new URL(`http://[${text}]`).hostname.slice(1, -1); } catch { return ""; }
}

export function portalOf(a: Address): Portal {
  return { transport: a.trtype.toUpperCase(), addr: ip(a.traddr) || a.traddr, port: a.trsvcid ?? "" };
}

export const portalsOf = (s: Subsystem) => s.listen_addresses.map(portalOf);

// parsePortal parses ADDRESS:PORT.
export function parsePortal(transport: string, text: string): Portal {
  const found = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text), addr = ip(found?.[1] ?? found?.[2] ?? ""), port = Number(found?.[3]);
  if (!found || !addr || (found[1] !== undefined) !== addr.includes(":") || port < 1 || port > 65535) throw new Incomplete(`${text} is not an IP address with a port, such as 192.0.2.11:4420 or [2001:db8::11]:4420`);
  if (addr === "0.0.0.0" || addr === "::") throw new Incomplete(`hosts cannot connect to ${addr}: name an address of the storage server`);
  return { transport, addr, port: String(port) };
}

export const portalText = (p: Portal) => `${p.addr.includes(":") ? `[${p.addr}]` : p.addr}:${p.port}`;

export const samePortal = (a: Portal, b: Portal) => a.transport === b.transport && a.addr === b.addr && a.port === b.port;

// connectCommands returns the commands with which a host connects, one for each address.
export const connectCommands = (nqn: string, portals: Portal[]) =>
  portals.map((p) => `nvme connect -t ${p.transport.toLowerCase()} -a ${shellWord(p.addr)} -s ${shellWord(p.port)} -n ${shellWord(nqn)}`);
