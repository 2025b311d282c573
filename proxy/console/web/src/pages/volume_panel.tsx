// The panel that shows what is known about one volume.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call } from "../api";
import * as format from "../format";
import { type IOSample, mayReadHistory, measuring, useHistory, withoutPercentiles } from "../model/io";
import { allowed, can, unseen } from "../model/session";
import { reportsANA } from "../model/exports";
import { Inventory, Volume, address } from "../model/storage";
import { announce, change, link, useCell } from "../state";
import { Alert, Button, Copy, ErrorNote, MethodName, ShareBar } from "../ui/parts";
import { GrafanaLink } from "../ui/grafana";
import { Line, Plot } from "../ui/plot";
import { ExportVolume } from "./export_dialog";
import { DeleteVolume, GrowVolume, LimitVolume, MeasureVolume, SnapshotVolume } from "./volume_actions";
import { limits } from "./volumes";

type Action = "" | "export" | "grow" | "snapshot" | "limit" | "delete";

// exporting lists the methods that are needed to export a volume.
const exporting = ["nvmf_get_subsystems", "nvmf_create_subsystem", "nvmf_subsystem_add_ns", "nvmf_subsystem_add_listener"];

export function VolumePanel({ volume: v, all, onClose }: { volume: Volume; all: Inventory; onClose: () => void }) {
  const [action, setAction] = useState<Action>("");
  const panel = useRef<HTMLElement>(null);
  useCell(allowed);
  useEffect(() => {
    announce(`Details of ${v.alias}`);
    const before = document.activeElement as HTMLElement | null;
    panel.current?.focus({ preventScroll: true });
    return () => { if (before?.isConnected) before.focus({ preventScroll: true }); };
  }, []);
  const base = all.volumes.find((o) => o.alias === v.base);
  const close = () => setAction("");
  return (
    <aside class="panel" ref={panel} tabIndex={-1} aria-label={`Details of ${v.alias}`} onKeyDown={(e) => { if (e.key === "Escape" && !action) onClose(); }}>
      <header><h2 class="wrap" title={v.alias}>{v.name}</h2><Button icon="close" label="Close the details" kind="quiet" onClick={onClose} /></header>
      <div class="buttons">
        {v.kind !== "snapshot" && can("bdev_lvol_resize") && <Button onClick={() => setAction("grow")}>Grow</Button>}
        {v.kind !== "snapshot" && (can("bdev_lvol_snapshot") || can("spdkgate_lvol_snapshot")) && <Button onClick={() => setAction("snapshot")}>Snapshot</Button>}
        {v.kind !== "snapshot" && can("bdev_set_qos_limit") && <Button onClick={() => setAction("limit")}>Limits</Button>}
        {exporting.every(can) && <Button onClick={() => setAction("export")}>{v.exports.some((e) => e.kind === "NVMe-oF") ? "Change export…" : "Export…"}</Button>}
        {can("bdev_lvol_delete") && <Button kind="danger" onClick={() => setAction("delete")}>Delete</Button>}
      </div>
      <dl class="facts">
        <dt>Kind</dt><dd>{v.kind}, {v.thin ? "thin" : "thick"}</dd>
        <dt>Lvstore</dt><dd>{v.store}</dd>
        <dt>Size</dt><dd class="figures">{format.bytes(v.size)}</dd>
        <dt>Allocated</dt><dd class="figures">{format.bytes(v.used)} <ShareBar share={v.used / v.size || 0} label="Allocated" /></dd>
        <dt>Limits</dt><dd>{limits(v) || "none"}</dd>
        <dt>UUID</dt><dd class="mono">{v.id}<Copy text={v.id} label="Copy the UUID" /></dd>
        {v.base && <><dt>Based on</dt><dd>{base ? <a href={link("volumes", { id: base.id })} onClick={(e) => { e.preventDefault(); change({ id: base.id }); }}>{base.name}</a> : v.base}</dd></>}
        {v.clones.length > 0 && <><dt>Clones</dt><dd><ul class="plain">{v.clones.slice(0, 20).map((c) => {
          const clone = all.volumes.find((o) => o.alias === c);
          return <li key={c}>{clone ? <a href={link("volumes", { id: clone.id })} onClick={(e) => { e.preventDefault(); change({ id: clone.id }); }}>{clone.name}</a> : c}</li>;
        })}{v.clones.length > 20 && <li>and {v.clones.length - 20} more</li>}</ul></dd></>}
      </dl>
      {mayReadHistory() ? <VolumeIO volume={v} /> : <><h3>I/O</h3><p class="faint">Not shown: you are not permitted to call <MethodName name="spdkgate_get_io_history" />, or the proxy keeps no history.</p></>}
      <GrafanaLink subject={{ volume: v.alias, uuid: v.id, store: v.store }} />
      <h3>Exports</h3>
      {v.exports.length === 0 ? <p class="faint">{all.subsystems === null && all.nodes === null ? "Your roles do not permit listing exports." : unseen("Not exported: no host can reach this volume.", "You see no export of this volume.")}</p> :
        v.exports.map((e) => <ExportOf key={e.name + e.unit} kind={e.kind} name={e.name} unit={e.unit} all={all} />)}
      {action === "export" && <ExportVolume volume={v} onClose={close} />}
      {action === "grow" && <GrowVolume volume={v} store={all.stores.find((s) => s.name === v.store)} onClose={close} />}
      {action === "snapshot" && <SnapshotVolume volume={v} onClose={close} />}
      {action === "limit" && <LimitVolume volume={v} onClose={close} />}
      {action === "delete" && <DeleteVolume volume={v} onClose={close} onDone={onClose} />}
    </aside>
  );
}

// VolumeIO shows a volume's I/O in the last hour.
function VolumeIO({ volume: v }: { volume: Volume }) {
  const { data: found, error, refresh } = useHistory(v.id);
  const data = found?.samples;
  const times = useMemo(() => (data ?? []).map((s) => s.time), [data]);
  if (error && found === undefined) return <ErrorNote error={error} retry={refresh} />;
  const lines = (read: (s: IOSample) => number | null, write: (s: IOSample) => number | null, names = ["Read", "Write"]): Line[] => [
    { name: names[0], color: "--line-a", values: data!.map(read) }, { name: names[1], color: "--line-b", values: data!.map(write) },
  ];
  return (
    <section class="io" aria-label="I/O of the last hour">
      <h3>I/O of the last hour</h3>
      {found === undefined ? <p class="faint">Reading…</p> : !data?.length ? <p class="faint">No I/O in the samples that the proxy has kept, one per minute.</p> : <>
        <Plot title="Operations" span={3600} times={times} format={format.perSecond} lines={lines((s) => s.read_ios_per_sec, (s) => s.write_ios_per_sec)} />
        <Plot title="Throughput" span={3600} binary times={times} format={format.bytesPerSecond} lines={lines((s) => s.read_bytes_per_sec, (s) => s.write_bytes_per_sec)} />
        <Plot title="Mean latency" span={3600} times={times} format={format.microseconds} lines={lines((s) => s.read_latency_us || null, (s) => s.write_latency_us || null)} />
        {data.some((s) => s.latency_p99_us) && <Plot title="Latency percentiles" span={3600} times={times} format={format.microseconds} lines={lines((s) => s.latency_p50_us ?? null, (s) => s.latency_p99_us ?? null, ["p50", "p99"])} />}
        <Measuring volume={v} state={found!.histogram} measured={!!data.at(-1)!.latency_p99_us} refresh={refresh} />
      </>}
    </section>
  );
}

// Measuring shows why there are no percentiles at present. It lets users enable or disable the histogram if they are permitted to.
function Measuring({ volume: v, state, measured, refresh }: { volume: Volume; state: "on" | "off" | "partial" | "unknown"; measured: boolean; refresh: () => void }) {
  const [switching, set] = useState<"" | "on" | "off">("");
  const close = () => {
    set("");
    refresh();
  };
  const reason = withoutPercentiles({ histogram: state }, measured), may = can(measuring);
  return (
    <div class="measuring">
      {reason && <p class="faint">{state === "on" ? reason : `No percentiles (p50, p99) of latencies: ${reason[0].toLowerCase()}${reason.slice(1)}`}</p>}
      {may && (state === "on" || state === "partial" ? <Button onClick={() => set("off")}>Stop measuring…</Button> : <Button onClick={() => set("on")}>Measure latencies…</Button>)}
      {!may && reason && state !== "on" && <p class="hint">A user whose role permits {measuring} can switch it on.</p>}
      {switching && <MeasureVolume volume={v} on={switching === "on"} partial={state === "partial"} onClose={close} />}
    </div>
  );
}

interface Controller { cntlid: number; hostnqn: string; num_io_qpairs: number }

function ExportOf({ kind, name, unit, all }: { kind: string; name: string; unit: number; all: Inventory }) {
  const s = kind === "NVMe-oF" ? all.subsystems?.find((o) => o.nqn === name) : undefined;
  return (
    <section class="export">
      <p class="mono wrap"><a href={link("exports", { id: name })}>{name}</a><Copy text={name} label="Copy the name" /></p>
      {s && !reportsANA(s) && <Alert level="warn">No ANA reporting: no snapshot of this volume is possible while a host is connected.</Alert>}
      <dl class="facts">
        <dt>{kind}</dt><dd>{s ? `namespace ${unit}` : `LUN ${unit}`}</dd>
        {s && <><dt>Listeners</dt><dd>{s.listen_addresses.map(address).join(", ") || unseen("none", "none that you may see")}</dd>
          <dt>Admitted</dt><dd>{s.allow_any_host ? "every host" : s.hosts.length ? <ul class="plain mono">{s.hosts.map((h) => <li key={h.nqn} class="wrap">{h.nqn}</li>)}</ul> : unseen("no host", "no host that you may see")}</dd>
          {can("nvmf_subsystem_get_controllers") && <><dt>Connected</dt><dd><Connected nqn={s.nqn} /></dd></>}</>}
      </dl>
    </section>
  );
}

// Connected shows the hosts connected to a subsystem. It queries the target only on demand, because SPDK pauses the subsystem to respond.
export function Connected({ nqn }: { nqn: string }) {
  const [found, set] = useState<Controller[] | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const look = async () => {
    setError(null);
    try {
      const list = await call<Controller[]>("nvmf_subsystem_get_controllers", { nqn });
      set(list);
      announce(format.plural(list.length, "controller") + " connected");
    } catch (e) { setError(e as Error); }
  };
  if (error) return <ErrorNote error={error} retry={() => void look()} />;
  if (!found) return <><Button onClick={() => void look()}>Show hosts</Button><p class="hint">SPDK pauses the subsystem's administrative commands for a moment to answer. I/O continues.</p></>;
  if (found.length === 0) return <Alert level="info">No host is connected.</Alert>;
  return <ul class="plain mono">{found.map((c) => <li key={c.cntlid} class="wrap">{c.hostnqn} <span class="faint">({format.plural(c.num_io_qpairs, "I/O queue")})</span></li>)}</ul>;
}
