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

// removal returns the call that removes a disk from the target, with its parameters.
export function removal(d: Disk): { method: string; name: string } | undefined {
  if (d.controller) return { method: "bdev_nvme_detach_controller", name: d.controller };
  const method = { "AIO disk": "bdev_aio_delete", "URING bdev": "bdev_uring_delete", "Malloc disk": "bdev_malloc_delete", "Null disk": "bdev_null_delete" }[d.product];
  return method ? { method, name: d.name } : undefined;
}
