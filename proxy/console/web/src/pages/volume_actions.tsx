// Actions on volumes: each dialog explains what will happen, and then makes one call.
import { useState } from "preact/hooks";
import * as format from "../format";
import { document_ } from "../model/document";
import { measureParams, measuring } from "../model/io";
import { can } from "../model/session";
import { reportsANA } from "../model/exports";
import { Store, Volume, capacity, free, inventory, provisioned } from "../model/storage";
import { useCell } from "../state";
import { ActionForm, Confirm, NameInput } from "../ui/action_form";
import { Alert, Field } from "../ui/parts";

const MiB = 1048576;

function SizeInput({ id, size, onSize, ...about }: { id: string; size: number; onSize: (mib: number) => void }) {
  const factors: Record<string, number> = { MiB: 1, GiB: 1024, TiB: 1048576 };
  const [unit, setUnit] = useState("GiB");
  const [text, setText] = useState(size ? String(size / factors.GiB) : "");
  const give = (t: string, u: string) => {
    setText(t);
    setUnit(u);
    const n = Number(t) * factors[u];
    onSize(t && n > 0 && Number.isFinite(n) ? Math.ceil(n) : 0);
  };
  return (
    <div class="joined">
      <input id={id} {...about} inputMode="decimal" value={text} required onInput={(e) => give(e.currentTarget.value, unit)} />
      <select aria-label="Unit" value={unit} onChange={(e) => give(text, e.currentTarget.value)}>{Object.keys(factors).map((u) => <option key={u}>{u}</option>)}</select>
    </div>
  );
}

export function CreateVolume({ stores, volumes, store: first, onClose }: { stores: Store[]; volumes: Volume[]; store?: string; onClose: () => void }) {
  const [storeName, setStore] = useState(first || stores[0]?.name || "");
  const [name, setName] = useState("");
  const [size, setSize] = useState(10240);
  const [thin, setThin] = useState(true);
  const store = stores.find((s) => s.name === storeName);
  const taken = volumes.some((v) => v.alias === `${storeName}/${name}`);
  const long = new TextEncoder().encode(name).length > 63;
  const tight = store && !thin && size * MiB > free(store);
  const after = store ? provisioned(volumes, storeName) + size * MiB : 0;
  const over = !!store && after > capacity(store);
  return (
    <ActionForm title="Create a volume" caution={over} action="Create" ready={!!store && !!name && !taken && !long && size > 0 && !tight} method="bdev_lvol_create"
      params={{ lvol_name: name, size_in_mib: size, lvs_name: storeName, thin_provision: thin }} done={`Created ${storeName}/${name}`} onClose={onClose}
      effect={!store ? "Choose an lvstore." : tight ? `${storeName} has only ${format.bytes(free(store))} free, and a thick volume takes its whole size at once.` :
        <>{thin ? "Takes no space until hosts write." : `Takes ${format.bytes(size * MiB)} at once; ${format.bytes(free(store) - size * MiB)} stay free.`} Afterwards {format.bytes(after)} of {format.bytes(capacity(store))} ({format.percent(after / capacity(store))}) are provisioned{over && ": writes fail when the lvstore is full"}. No host can reach it until it is exported.</>}>
      <Field label="Lvstore">{(f) => <select {...f} value={storeName} onChange={(e) => setStore(e.currentTarget.value)}>{stores.map((s) => <option key={s.uuid} value={s.name}>{s.name} ({format.bytes(free(s))} free)</option>)}</select>}</Field>
      <NameInput name={name} onInput={setName} error={taken ? `${storeName} has a volume with this name` : long ? "At most 63 bytes" : ""} />
      <Field label="Size">{(f) => <SizeInput {...f} size={size} onSize={setSize} />}</Field>
      <label class="check"><input type="checkbox" checked={thin} onChange={(e) => setThin(e.currentTarget.checked)} /> Thin: allocate space when it is first written</label>
    </ActionForm>
  );
}

export function GrowVolume({ volume: v, store, onClose }: { volume: Volume; store?: Store; onClose: () => void }) {
  const now = Math.ceil(v.size / MiB);
  const [size, setSize] = useState(now);
  const added = (size - now) * MiB;
  return (
    <ActionForm title={`Grow ${v.name}`} action="Grow" ready={size > now && (v.thin || !store || added <= free(store))} method="bdev_lvol_resize" params={{ name: v.id, size_in_mib: size }}
      done={`Grew ${v.alias} to ${format.bytes(size * MiB)}`} onClose={onClose}
      effect={size <= now ? `The volume has ${format.bytes(v.size)}. Give a larger size: this dialog does not shrink volumes, because data would be lost.` :
        !v.thin && store && added > free(store) ? `${v.store} has only ${format.bytes(free(store))} free.` :
          `${format.bytes(v.size)} becomes ${format.bytes(size * MiB)}. Hosts see the new size at once; grow the file system there. A volume cannot be shrunk safely afterwards.`}>
      <Field label="New size">{(f) => <SizeInput {...f} size={size} onSize={setSize} />}</Field>
    </ActionForm>
  );
}

export function SnapshotVolume({ volume: v, onClose }: { volume: Volume; onClose: () => void }) {
  const [name, setName] = useState(`${v.name}-${new Date().toISOString().slice(0, 16).replace(/[-:]/g, "").replace("T", "-")}`.slice(-63));
  const own = can("spdkgate_lvol_snapshot"), blind = useCell(inventory)?.subsystems?.find((s) => v.exports.some((e) => e.name === s.nqn) && !reportsANA(s));
  return (
    <ActionForm title={`Snapshot of ${v.name}`} action="Take the snapshot" ready={name !== ""} onClose={onClose} done={`Took the snapshot ${name}`}
      method={own ? "spdkgate_lvol_snapshot" : "bdev_lvol_snapshot"}
      params={own ? { snapshots: [{ lvol_name: v.alias, snapshot_name: name }] } : { lvol_name: v.alias, snapshot_name: name }}
      effect={<>The snapshot keeps the volume's present contents, takes no space at first, and stays when the volume changes. {v.exports.length > 0 && "Hosts hold their I/O back for a moment meanwhile. "}What is written afterwards takes new space in {v.store}.</>}>
      {blind && <Alert level="warn">{blind.nqn} exports the volume without ANA reporting. While a host is connected, the snapshot is refused. To mend this, withdraw the export and export the volume again.</Alert>}
      <NameInput label="Name of the snapshot" name={name} onInput={setName} />
    </ActionForm>
  );
}

export function LimitVolume({ volume: v, onClose }: { volume: Volume; onClose: () => void }) {
  const [iops, setIOPS] = useState(String(v.limits?.rw_ios_per_sec || ""));
  const [rate, setRate] = useState(String(v.limits?.rw_mbytes_per_sec || ""));
  const whole = (t: string) => /^\d*$/.test(t.trim());
  return (
    <ActionForm title={`Limits of ${v.name}`} action="Set limits" ready={whole(iops) && whole(rate)} method="bdev_set_qos_limit" onClose={onClose} done={`Set limits of ${v.alias}`}
      params={{ name: v.id, rw_ios_per_sec: Number(iops), rw_mbytes_per_sec: Number(rate) }}
      effect={Number(iops) || Number(rate) ? "Hosts wait when they exceed a limit. It applies at once." : "Without limits, this volume may use all that the devices give."}>
      <Field label="Reads and writes per second" hint="Empty for no limit; SPDK rounds up to thousands.">{(f) => <input {...f} inputMode="numeric" value={iops} onInput={(e) => setIOPS(e.currentTarget.value)} />}</Field>
      <Field label="Throughput in MiB/s" hint="Empty for no limit.">{(f) => <input {...f} inputMode="numeric" value={rate} onInput={(e) => setRate(e.currentTarget.value)} />}</Field>
    </ActionForm>
  );
}

// MeasureVolume enables or disables the volume's latency histogram.
export function MeasureVolume({ volume: v, on, partial, onClose }: { volume: Volume; on: boolean; partial: boolean; onClose: () => void }) {
  const bounded = !!document_.value?.methods.find((m) => m.name === measuring)?.params.some((p) => p.name === "max_nsec"); // since v25.05
  return (
    <ActionForm title={`${on ? "Measure" : "Stop measuring"} latencies of ${v.name}`} action={on ? "Switch on" : "Switch off"} ready method={measuring} params={measureParams(v.id, on, bounded)} onClose={onClose}
      done={`Switched the latency histogram of ${v.alias} ${on ? "on" : "off"}`}
      effect={!on ? `The counts are dropped, and the percentiles end.${partial ? " Then switch it on again, for all latencies." : ""}` : <>
        SPDK counts the latency of every operation in a histogram, which takes 58 KiB of the target's memory for each of its I/O channels: one for each core that serves the volume's hosts.
        Once a minute, the proxy reads it, which takes 0.4 ms of the target's time. The first percentiles appear after two readings. The setting is part of the target's configuration, and saved with it.</>} />
  );
}

export function DeleteVolume({ volume: v, onClose, onDone }: { volume: Volume; onClose: () => void; onDone: () => void }) {
  const [typed, setTyped] = useState("");
  const stuck = v.kind === "snapshot" && v.clones.length > 1;
  return (
    <ActionForm title={`Delete ${v.name}`} action="Delete" danger ready={typed === v.name && !stuck} onClose={onClose} onDone={onDone} done={`Deleted ${v.alias}`}
      method={v.kind === "snapshot" && can("spdkgate_lvol_delete") ? "spdkgate_lvol_delete" : "bdev_lvol_delete"} params={{ name: v.id }}
      effect={stuck ? `This snapshot has ${v.clones.length} clones. SPDK deletes a snapshot only when at most one is left.` : <>
        {v.kind === "snapshot" && v.clones.length === 1 ? `The clone ${v.clones[0]} takes over the snapshot's data, and stays.` : `All data of ${v.alias} (${Number.isNaN(v.used) ? `${format.bytes(v.size)} in size` : v.used === 0 ? "nothing allocated" : `${format.bytes(v.used)} allocated`}) is lost. This cannot be undone.`}
        {v.exports.length > 0 && ` It is exported by ${v.exports.map((e) => e.name).join(", ")}: hosts lose it at once.`}</>}>
      {!stuck && <Confirm name={v.name} typed={typed} onInput={setTyped} />}
    </ActionForm>
  );
}
