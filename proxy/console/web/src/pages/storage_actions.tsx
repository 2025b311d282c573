// Actions on lvstores and disks.
import { useEffect, useState } from "preact/hooks";
import * as format from "../format";
import { can } from "../model/session";
import { Removal, disksLost, inMemory, isUnused, removal, storesLost } from "../model/disks";
import { Disk, Inventory, Store, Volume, capacity, inventory, inventoryError, readInventory } from "../model/storage";
import { useCell } from "../state";
import { ActionForm, Confirm, NameInput } from "../ui/action_form";
import { Alert, Field } from "../ui/parts";

const MiB = 1048576;
const clusterSizes = [1, 4, 16, 64]; // MiB; 4 is SPDK's default

const tooLong = (name: string) => (new TextEncoder().encode(name).length > 63 ? "At most 63 bytes" : "");

const storeNameError = (name: string, stores: Store[]) => (stores.some((s) => s.name === name) ? "There is an lvstore with this name" : name.includes("/") ? "No slash: it separates an lvstore from its volumes" : tooLong(name));

export function CreateStore({ disk, stores, onClose }: { disk: Disk; stores: Store[]; onClose: () => void }) {
  const [name, setName] = useState("");
  const [cluster, setCluster] = useState(4);
  const [typed, setTyped] = useState("");
  const error = storeNameError(name, stores);
  const clusters = Math.floor(disk.size / (cluster * MiB));
  return (
    <ActionForm title={`Create an lvstore on ${disk.name}`} action="Create" danger ready={!!name && !error && typed === disk.name} method="bdev_lvol_create_lvstore" onClose={onClose}
      params={{ bdev_name: disk.name, lvs_name: name, cluster_sz: cluster * MiB }} done={`Created the lvstore ${name}`}
      effect={<>Everything on {disk.name}{disk.origin && ` (${disk.origin})`} is lost, also what other programs wrote to it. {can("bdev_examine") && "If it may contain an lvstore, press “Find its lvstore” first. "}The lvstore has about {format.count(clusters)} clusters of {cluster} MiB.
        A volume takes whole clusters, at least one. After a snapshot, the first write to each cluster copies {cluster} MiB. The target keeps 16 bytes in memory for each cluster of a thin volume, {format.bytes(16 * clusters)} for one as large as the lvstore.</>}>
      <NameInput label="Name of the lvstore" name={name} error={error} onInput={setName} />
      <Field label="Cluster size" hint="It cannot be changed later.">{(f) => <select {...f} value={cluster} onChange={(e) => setCluster(Number(e.currentTarget.value))}>{clusterSizes.map((c) => <option key={c} value={c}>{c} MiB{c === 4 ? " (SPDK's default)" : ""}</option>)}</select>}</Field>
      <Confirm name={disk.name} typed={typed} onInput={setTyped} />
    </ActionForm>
  );
}

export function RenameStore({ store, stores, volumes, onClose }: { store: Store; stores: Store[]; volumes: Volume[]; onClose: () => void }) {
  const [name, setName] = useState(store.name);
  const error = name === store.name ? "" : storeNameError(name, stores);
  const own = volumes.filter((v) => v.store === store.name);
  return (
    <ActionForm title={`Rename ${store.name}`} action="Rename" danger ready={!!name && name !== store.name && !error} method="bdev_lvol_rename_lvstore" onClose={onClose}
      params={{ old_name: store.name, new_name: name }} done={`Renamed ${store.name} to ${name}`}
      effect={`The names of its ${format.plural(own.length, "volume")} change too, such as ${name}/${own[0]?.name ?? "VOLUME"}. What refers to the lvstore by name does not follow: tenants and roles of this proxy, spdk-csi's lvstores, scripts. Change those at the same time: until then, its volumes are not found there.`}>
      <NameInput label="New name" name={name} error={error} onInput={setName} />
    </ActionForm>
  );
}

const named = 8; // maximum number of volumes that a dialog names

const list = (of: Volume[]) => of.slice(0, named).map((v) => v.name).join(", ") + (of.length > named ? ` and ${format.count(of.length - named)} more` : "");

// DeleteStore deletes an lvstore. It first reads the inventory again, because the dialog must name the volumes that would be lost.
export function DeleteStore({ store, all, onClose, onDone }: { store: Store; all: Inventory; onClose: () => void; onDone: () => void }) {
  const [typed, setTyped] = useState("");
  const [current, setCurrent] = useState(false);
  const failed = useCell(inventoryError);
  useEffect(() => { void readInventory().then(() => setCurrent(true)); }, []);
  const own = all.volumes.filter((v) => v.store === store.name), exported = own.filter((v) => v.exports.length > 0);
  return (
    <ActionForm title={`Delete the lvstore ${store.name}`} action="Delete" danger ready={typed === store.name && exported.length === 0 && current && !failed} method="bdev_lvol_delete_lvstore" params={{ uuid: store.uuid }}
      onClose={onClose} onDone={onDone} done={`Deleted the lvstore ${store.name}`}
      effect={failed ? `What the lvstore contains cannot be read: ${failed.message}` : !current ? "Reading what the lvstore contains…" : exported.length > 0 ? <>Hosts may use {format.plural(exported.length, "volume")} of this lvstore: {list(exported)}. Withdraw {exported.length === 1 ? "its export" : "their exports"} first.</> :
        own.length > 0 ? <>{format.plural(own.length, "volume")} and all data in {own.length === 1 ? "it" : "them"} are lost: {list(own)}. This cannot be undone.{all.subsystems === null && " Your roles do not permit listing exports: hosts may use them."}</> :
          `The lvstore is empty. ${store.base_bdev} stays, unused.`}>
      {exported.length === 0 && <Confirm name={store.name} typed={typed} onInput={setTyped} />}
    </ActionForm>
  );
}

// LostStores names the lvstores and volumes that disappear with a call. It reads the inventory again, and then calls onRead.
export function LostStores({ method, params, onRead }: Removal & { onRead: () => void }) {
  const [current, setCurrent] = useState(false);
  const all = useCell(inventory), failed = useCell(inventoryError);
  useEffect(() => { void readInventory().then(() => { setCurrent(true); onRead(); }); }, []);
  if (failed) return <Alert level="warn">Which volumes disappear with this call cannot be read: {failed.message}</Alert>;
  if (!current || !all) return <Alert level="info">Reading which volumes disappear with this call…</Alert>;
  const lost = storesLost({ method, params }, all);
  const lists = ["bdev_lvol_get_lvstores", "bdev_get_bdevs", "nvmf_get_subsystems"].filter((m) => all.refused.includes(m));
  const used = disksLost({ method, params }, all).filter((d) => d.claimed && !lost.some((s) => s.base_bdev === d.name));
  return (
    <>
      {lists.length > 0 && <Alert level="warn">Your roles do not permit {lists.join(", ")}: volumes or exports may be missing here.</Alert>}
      {used.map((d) => <Alert key={d.name} level="warn">Another bdev of the target uses {d.name}.</Alert>)}
      {lost.map((s) => <LostStore key={s.uuid} store={s} all={all} deleted={method === "bdev_lvol_delete_lvstore"} />)}
    </>
  );
}

function LostStore({ store, all, deleted }: { store: Store; all: Inventory; deleted: boolean }) {
  const own = all.volumes.filter((v) => v.store === store.name), exported = own.filter((v) => v.exports.length > 0);
  const lost = deleted || all.disks.some((d) => d.name === store.base_bdev && inMemory(d));
  if (own.length === 0) return <Alert level="warn">The lvstore {store.name} disappears. {all.refused.includes("bdev_get_bdevs") ? "" : "It is empty."}</Alert>;
  return (
    <Alert level="warn">
      The lvstore {store.name} and {format.plural(own.length, "volume")} in it disappear: {list(own)}. {lost ? "Their data is lost. " : `Their data stays on ${store.base_bdev}: attached again, it has the same volumes, but their exports must be made again. `}
      {exported.length > 0 && `Hosts may use ${list(exported)}, and would lose the data that they have not written yet: withdraw the ${exported.length === 1 ? "export" : "exports"} first.`}
    </Alert>
  );
}

const pci = /^([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/i;

export function AttachDisk({ all, onClose }: { all: Inventory; onClose: () => void }) {
  const kinds = [["nvme", "NVMe device in the server", "bdev_nvme_attach_controller"], ["aio", "File or block device (AIO)", "bdev_aio_create"]].filter(([, , method]) => can(method));
  const [kind, setKind] = useState(kinds[0][0]);
  const [name, setName] = useState("");
  const [at, setAt] = useState("");
  const [block, setBlock] = useState(4096);
  const nvme = kind === "nvme";
  // SPDK accepts an address without its domain, and in capitals.
  const place = nvme && pci.test(at) ? `${at.length === "00:00.0".length ? "0000:" : ""}${at}`.toLowerCase() : at;
  const same = all.disks.find((d) => d.origin === place && place !== "");
  const badPlace = !at ? "" : same ? `${same.name} is this one already` : nvme ? (pci.test(at) ? "" : "A PCI address such as 0000:5e:00.0, which lspci shows") : at.startsWith("/") ? "" : "A path on the server that begins with /";
  const taken = all.disks.some((d) => (nvme ? d.controller : d.name) === name && name !== "") ? `There is a ${nvme ? "controller" : "disk"} with this name` : "";
  return (
    <ActionForm title="Attach a disk" action="Attach" danger={!nvme} ready={!!name && !!at && !badPlace && !taken} onClose={onClose} done={`Attached ${name}`}
      method={nvme ? "bdev_nvme_attach_controller" : "bdev_aio_create"} params={nvme ? { name, trtype: "PCIe", traddr: place } : { name, filename: at, block_size: block }}
      effect={<>{nvme ? "The device must belong to SPDK: its scripts/setup.sh unbinds it from the kernel. A device with file systems that the server uses must not be attached." : "SPDK does not ask whether the server itself uses the file or device: attach none with a mounted file system."} Attaching writes nothing. An lvstore on the disk appears by itself, or after “Find its lvstore” if the target examines only disks that it is told to.</>}>
      {kinds.length > 1 && <Field label="Kind">{(f) => <select {...f} value={kind} onChange={(e) => setKind(e.currentTarget.value)}>{kinds.map(([id, text]) => <option key={id} value={id}>{text}</option>)}</select>}</Field>}
      <NameInput label={nvme ? "Name of the controller" : "Name of the disk"} name={name} error={taken} onInput={setName} />
      <Field label={nvme ? "PCI address" : "Path on the server"} error={badPlace}>{(f) => <input {...f} value={at} required autocomplete="off" spellcheck={false} onInput={(e) => setAt(e.currentTarget.value.trim())} />}</Field>
      {!nvme && <Field label="Block size" hint="An lvstore is found again only with the block size with which it was created.">{(f) => <select {...f} value={block} onChange={(e) => setBlock(Number(e.currentTarget.value))}><option>512</option><option>4096</option></select>}</Field>}
    </ActionForm>
  );
}

// siblings returns the disks that are removed together with a disk: all namespaces of an NVMe controller.
export const siblings = (d: Disk, all: Inventory) => (d.controller ? all.disks.filter((o) => o.controller === d.controller) : [d]);

// removable reports whether nothing uses a disk, or the disks that are removed together with it.
export function removable(d: Disk, all: Inventory): boolean {
  const call = removal(d);
  return !!call && can(call.method) && siblings(d, all).every(isUnused);
}

export function RemoveDisk({ disk, all, onClose, onDone }: { disk: Disk; all: Inventory; onClose: () => void; onDone: () => void }) {
  const [typed, setTyped] = useState("");
  const { method, name } = removal(disk)!, others = siblings(disk, all).filter((d) => d !== disk);
  const memory = inMemory(disk);
  return (
    <ActionForm title={`Remove ${disk.name}`} action="Remove" danger ready={typed === disk.name} method={method} params={{ name }} onClose={onClose} onDone={onDone} done={`Removed ${disk.name}`}
      effect={<>{memory ? `${disk.name} exists only in the target's memory: its data is lost.` : `The target forgets ${disk.name}. Nothing on it changes, and it can be attached again.`}{others.length > 0 && ` With it go ${others.map((d) => d.name).join(", ")} of the same controller.`}</>}>
      <Confirm name={disk.name} typed={typed} onInput={setTyped} />
    </ActionForm>
  );
}

export function FindStore({ disk, onClose }: { disk: Disk; onClose: () => void }) {
  return <ActionForm title={`Find the lvstore on ${disk.name}`} action="Find" ready method="bdev_examine" params={{ name: disk.name }} onClose={onClose} done={`${disk.name} is examined. An lvstore on it appears within seconds`}
    effect="The target reads the disk and loads an lvstore, a RAID or a partition table that it finds. Nothing is written. Do this only for a disk that no host could write to: a host may have written an lvstore of its choice." />;
}

export const facts = (s: Store) => `${format.count(s.total_data_clusters)} clusters of ${format.bytes(s.cluster_size)}, ${format.bytes(capacity(s))}`;
