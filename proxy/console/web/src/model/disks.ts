// Disks, which are bdevs other than logical volumes, and the lvstores on them.
import type { Disk, Inventory, Store } from "./storage";

// isUnused reports whether nothing on the target uses a disk. It does not consider the disk's contents.
export const isUnused = (d: Disk) => !d.claimed && !d.store && d.exports.length === 0;

// A Place is a disk, the store on it, or both. A user who may not list bdevs sees only stores.
export interface Place { name: string; disk?: Disk; store?: Store }

export function placesOf(all: Inventory): Place[] {
  const disks = all.disks.map((disk) => ({ name: disk.name, disk, store: all.stores.find((s) => s.base_bdev === disk.name) }));
  const others = all.stores.filter((s) => !all.disks.some((d) => d.name === s.base_bdev)); // including stores on logical volumes
  return [...disks, ...others.map((store) => ({ name: store.base_bdev || store.name, store }))];
}

// use returns a description of what a disk is used for.
export function use({ disk, store }: Place): string {
  if (store) return `lvstore ${store.name}`;
  if (disk?.exports.length) return "exported";
  return disk?.claimed ? "part of another bdev" : "unused";
}

// removals maps products to the methods that remove their bdevs.
const removals: Record<string, string> = { "AIO disk": "bdev_aio_delete", "URING bdev": "bdev_uring_delete", "Malloc disk": "bdev_malloc_delete", "Null disk": "bdev_null_delete" };

// inMemory reports whether a disk exists only in the target's memory.
export const inMemory = (d: Disk) => ["Malloc disk", "Null disk"].includes(d.product);

// A Removal describes a call that removes a disk or an lvstore. Not all of these parameters are given.
export interface Removal { method: string; params: { name?: unknown; lvs_name?: unknown; uuid?: unknown } }

// disksLost returns the disks that a call removes: all namespaces of a controller, or a disk by its name or UUID.
export const disksLost = ({ method, params: { name } }: Removal, all: Inventory) =>
  all.disks.filter((d) => { const call = removal(d); return call?.method === method && (call.name === name || d.uuid === name); });

// storesLost returns the lvstores that disappear from the target with a call.
export function storesLost(r: Removal, all: Inventory): Store[] {
  if (r.method === "bdev_lvol_delete_lvstore") return all.stores.filter((s) => s.uuid === r.params.uuid || s.name === r.params.lvs_name);
  const gone = disksLost(r, all);
  return all.stores.filter((s) => s.base_bdev === r.params.name || gone.some((d) => d.name === s.base_bdev));
}

// removesStores reports whether a method can remove an lvstore from the target.
export const removesStores = (method: string) => ["bdev_lvol_delete_lvstore", "bdev_nvme_detach_controller", ...Object.values(removals)].includes(method);

// removal returns the call that removes a disk from the target, with its parameters.
export function removal(d: Disk): { method: string; name: string } | undefined {
  if (d.controller) return { method: "bdev_nvme_detach_controller", name: d.controller };
  const method = removals[d.product];
  return method ? { method, name: d.name } : undefined;
}
