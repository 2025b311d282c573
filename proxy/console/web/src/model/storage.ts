// This module reads what the target stores and exports, with ordinary calls.
import { useEffect, useLayoutEffect } from "preact/hooks";
import { CallError, call } from "../api";
import { Cell, useCell } from "../state";
import { session } from "./session";

export interface Store {
  uuid: string;
  name: string;
  base_bdev: string;
  total_data_clusters: number;
  free_clusters: number;
  cluster_size: number;
}

export interface Bdev {
  name: string;
  aliases?: string[];
  uuid?: string;
  product_name?: string;
  block_size: number;
  num_blocks: number;
  claimed?: boolean;
  assigned_rate_limits?: Limits;
  driver_specific?: { lvol?: Lvol; aio?: { filename: string }; uring?: { filename: string }; nvme?: NVMe | NVMe[] };
}

interface NVMe {
  pci_address?: string;
  trid?: Address & { subnqn?: string };
  ctrlr_data?: { model_number?: string; serial_number?: string };
  ns_data?: { id: number };
}

export interface Limits {
  rw_ios_per_sec: number;
  rw_mbytes_per_sec: number;
  r_mbytes_per_sec: number;
  w_mbytes_per_sec: number;
}

// An Entry is a volume in SPDK's list of logical volumes. This list is shorter and faster to read than the list of bdevs, because it lacks
// sizes.
interface Entry {
  alias: string;
  uuid: string;
  name: string;
  is_thin_provisioned: boolean;
  is_snapshot: boolean;
  is_clone: boolean;
  is_esnap_clone: boolean;
  num_allocated_clusters?: number; // since v25.01
  lvs: { name: string };
}

interface Lvol {
  lvol_store_uuid: string;
  thin_provision: boolean;
  num_allocated_clusters?: number;
  snapshot?: boolean;
  clone?: boolean;
  esnap_clone?: boolean;
  base_snapshot?: string;
  clones?: string[];
  external_snapshot_name?: string;
}

export interface Address { trtype: string; adrfam?: string; traddr: string; trsvcid?: string }

// A Host is admitted to a subsystem. Its keys are given by their names in the keyring.
export interface Host { nqn: string; dhchap_key?: string; dhchap_ctrlr_key?: string }

export interface Subsystem {
  nqn: string;
  subtype: string;
  listen_addresses: Address[];
  allow_any_host: boolean;
  hosts: Host[];
  serial_number?: string;
  model_number?: string;
  max_namespaces?: number;
  namespaces?: { nsid: number; bdev_name?: string; name?: string; uuid?: string; anagrpid?: number }[];
}

export interface TargetNode {
  name: string;
  alias_name?: string;
  luns: { lun_id: number; bdev_name: string }[];
  pg_ig_maps: { pg_tag: number; ig_tag: number }[];
  require_chap: boolean;
  mutual_chap: boolean;
  disable_chap: boolean;
}

export interface Export { kind: "NVMe-oF" | "iSCSI"; name: string; unit: number }

// A Volume is a logical volume or a snapshot.
export interface Volume {
  id: string; // UUID, which is the name of its bdev
  name: string; // without the store
  alias: string; // STORE/NAME
  store: string;
  kind: "volume" | "snapshot" | "clone";
  thin: boolean;
  size: number;
  used: number; // allocated bytes
  base: string; // alias of the snapshot below
  clones: string[]; // aliases
  limits?: Limits;
  exports: Export[];
}

// A Disk is a bdev that is not a logical volume.
export interface Disk {
  name: string;
  uuid: string;
  product: string;
  size: number;
  blockSize: number;
  origin: string; // path or address
  model: string; // and serial number
  controller: string; // of an NVMe namespace
  claimed: boolean;
  store?: string;
  exports: Export[];
}

export interface Inventory {
  stores: Store[];
  volumes: Volume[];
  disks: Disk[]; // all other bdevs
  subsystems: Subsystem[] | null; // null: not permitted
  nodes: TargetNode[] | null;
  at: number;
  refused: string[]; // methods
}

// orRefused returns undefined if the policy refuses the call or the target lacks the method.
async function orRefused<T>(refused: string[], method: string, params?: object): Promise<T | undefined> {
  try {
    return await call<T>(method, params);
  } catch (e) {
    const denied = e instanceof CallError && (e.kind === "denied" || e.kind === "missing" || e.code === -32601 || e.code === -32009);
    if (!denied) throw e;
    refused.push(method);
    return undefined;
  }
}

export const inventory = new Cell<Inventory | null>(null);

// firstLook contains what the pages can list before the inventory has been read: exports and, a moment later, volumes without their sizes,
// limits and parents.
export const firstLook = new Cell<Inventory | null>(null);
export const inventoryError = new Cell<Error | null>(null);
export const inventoryStale = new Cell(false);

session.follow(() => { if (!session.value) inventory.value = firstLook.value = null; });

let reading: Promise<void> | null = null;
let again = false;

// readInventory reads all volumes and exports. If a read is already in progress, readInventory starts another one after it, because the
// running one may have missed the latest change.
export function readInventory(): Promise<void> {
  again = reading !== null;
  reading ??= readUntilCurrent().finally(() => { reading = null; });
  return reading;
}

async function readUntilCurrent() {
  do {
    again = false;
    try {
      inventory.value = await read(inventory.value === null);
      firstLook.value = null;
      inventoryError.value = null;
    } catch (e) {
      inventoryError.value = e as Error;
    }
  } while (again);
}

// freshInventory reads the inventory again if it is older than the given number of ms.
export function freshInventory(age: number): Promise<void> {
  const now = inventory.value;
  return now && !inventoryStale.value && Date.now() - now.at < age ? Promise.resolve() : reading ?? readInventory();
}

// useInventory returns the inventory for a page, and reads it again after an event.
export function useInventory(): Inventory | null {
  const found = useCell(inventory), stale = useCell(inventoryStale);
  useLayoutEffect(() => { void freshInventory(30000); }, []);
  useEffect(() => {
    if (!stale || document.hidden) return;
    const timer = setTimeout(() => void readInventory(), 3000);
    return () => clearTimeout(timer);
  }, [stale]);
  return found;
}

// read reads the inventory. It requests the long list of bdevs last, because SPDK responds to nothing else in the meantime. On the first
// read, the other results are shown before that list arrives.
async function read(first: boolean): Promise<Inventory> {
  inventoryStale.value = false;
  const refused: string[] = [];
  const short = Promise.all([
    orRefused<Store[]>(refused, "bdev_lvol_get_lvstores"),
    orRefused<Subsystem[]>(refused, "nvmf_get_subsystems"),
    orRefused<TargetNode[]>(refused, "iscsi_get_target_nodes"),
  ]);
  const entries = first ? orRefused<Entry[]>(refused, "bdev_lvol_get_lvols") : undefined;
  entries?.catch(() => {}); // prevents an unhandled rejection if the other calls fail
  const [stores = [], subsystems, nodes] = await short;
  const known: Inventory = { stores, volumes: [], disks: [], subsystems: subsystems ?? null, nodes: nodes ?? null, at: Date.now(), refused };
  const exports = exportsByBdev(subsystems ?? [], nodes ?? []);
  if (entries) {
    firstLook.value = known;
    const byName = new Map(stores.map((s) => [s.name, s]));
    firstLook.value = { ...known, volumes: (await entries ?? []).map((e) => volumeOfEntry(e, byName.get(e.lvs.name), exports)) };
  }
  const bdevs = await orRefused<Bdev[]>(refused, "bdev_get_bdevs") ?? [];
  const byUUID = new Map(stores.map((s) => [s.uuid, s]));
  const volumes: Volume[] = [], disks: Disk[] = [];
  for (const b of bdevs) {
    const lvol = b.driver_specific?.lvol;
    if (!lvol) disks.push(diskOf(b, stores, exports.get(b.name) ?? []));
    else volumes.push(volumeOf(b, lvol, byUUID.get(lvol.lvol_store_uuid), exports));
  }
  return { ...known, volumes, disks, at: Date.now() };
}

function volumeOfEntry(e: Entry, store: Store | undefined, exports: Map<string, Export[]>): Volume {
  return {
    id: e.uuid, name: e.name, alias: e.alias, store: e.lvs.name,
    kind: e.is_snapshot ? "snapshot" : e.is_clone || e.is_esnap_clone ? "clone" : "volume",
    thin: e.is_thin_provisioned, size: NaN, used: e.num_allocated_clusters !== undefined && store ? e.num_allocated_clusters * store.cluster_size : NaN,
    base: "", clones: [], exports: [...(exports.get(e.uuid) ?? []), ...(exports.get(e.alias) ?? [])],
  };
}

function volumeOf(b: Bdev, lvol: Lvol, store: Store | undefined, exports: Map<string, Export[]>): Volume {
  const alias = b.aliases?.[0] ?? b.name;
  const slash = alias.indexOf("/");
  const storeName = store?.name ?? alias.slice(0, Math.max(slash, 0));
  const size = b.block_size * b.num_blocks;
  const clusters = lvol.num_allocated_clusters;
  return {
    id: b.uuid ?? b.name, name: alias.slice(slash + 1), alias, store: storeName,
    kind: lvol.snapshot ? "snapshot" : lvol.clone || lvol.esnap_clone ? "clone" : "volume",
    thin: lvol.thin_provision, size,
    used: clusters !== undefined && store ? clusters * store.cluster_size : lvol.thin_provision ? NaN : size,
    base: lvol.base_snapshot ? `${storeName}/${lvol.base_snapshot}` : lvol.external_snapshot_name ?? "",
    clones: (lvol.clones ?? []).map((c) => `${storeName}/${c}`),
    limits: b.assigned_rate_limits && Object.values(b.assigned_rate_limits).some((n) => n > 0) ? b.assigned_rate_limits : undefined,
    exports: [...(exports.get(b.name) ?? []), ...(alias !== b.name ? exports.get(alias) ?? [] : [])],
  };
}

function diskOf(b: Bdev, stores: Store[], exports: Export[]): Disk {
  const d = b.driver_specific, nvme = Array.isArray(d?.nvme) ? d.nvme[0] : d?.nvme;
  const suffix = `n${nvme?.ns_data?.id}`;
  return {
    name: b.name, uuid: b.uuid ?? "", product: b.product_name ?? "", size: b.block_size * b.num_blocks, blockSize: b.block_size,
    origin: d?.aio?.filename ?? d?.uring?.filename ?? nvme?.pci_address ?? (nvme?.trid ? `${address(nvme.trid)} ${nvme.trid.subnqn ?? ""}`.trim() : ""),
    model: [nvme?.ctrlr_data?.model_number, nvme?.ctrlr_data?.serial_number].filter(Boolean).join(", "),
    controller: nvme && b.name.endsWith(suffix) ? b.name.slice(0, -suffix.length) : "",
    claimed: b.claimed ?? true, store: stores.find((s) => s.base_bdev === b.name)?.name, exports,
  };
}

function exportsByBdev(subsystems: Subsystem[], nodes: TargetNode[]): Map<string, Export[]> {
  const found = new Map<string, Export[]>();
  const add = (bdev: string | undefined, e: Export) => {
    if (bdev) found.set(bdev, [...(found.get(bdev) ?? []), e]);
  };
  for (const s of subsystems) for (const n of s.namespaces ?? []) add(n.bdev_name ?? n.name, { kind: "NVMe-oF", name: s.nqn, unit: n.nsid });
  for (const n of nodes) for (const l of n.luns) add(l.bdev_name, { kind: "iSCSI", name: n.name, unit: l.lun_id });
  return found;
}

// provisioned returns the sum of the sizes of an lvstore's volumes. Clusters shared by snapshots count once.
export function provisioned(volumes: Volume[], store: string): number {
  let sum = 0;
  for (const v of volumes) if (v.store === store) sum += v.kind === "snapshot" ? v.used || 0 : v.size;
  return sum;
}

export const capacity = (s: Store) => s.total_data_clusters * s.cluster_size;
export const free = (s: Store) => s.free_clusters * s.cluster_size;
export const used = (s: Store) => capacity(s) - free(s);

export function address(a: Address): string {
  const host = a.traddr.includes(":") ? `[${a.traddr}]` : a.traddr;
  return `${a.trtype} ${host}${a.trsvcid ? ":" + a.trsvcid : ""}`;
}
