// The page that shows which volumes are exported to which hosts, by NVMe-oF subsystems and iSCSI target nodes.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call } from "../api";
import * as format from "../format";
import { allowed, can, unseen } from "../model/session";
import { connectCommands, portalsOf, reportsANA } from "../model/exports";
import { Address, Inventory, Subsystem, TargetNode, Volume, address, firstLook, inventoryError, readInventory, useInventory } from "../model/storage";
import { announce, change, link, route, useCell, useLoad, useSearch } from "../state";
import { Column, Grid, Sort, nextSort } from "../ui/grid";
import { Alert, Button, CommandLine, Copy, Empty, Ends, ErrorNote, MethodName, Search } from "../ui/parts";
import { ExportVolume } from "./export_dialog";
import { WithdrawExport } from "./withdraw_dialog";
import { Connected } from "./volume_panel";

interface Row {
  id: string;
  kind: "NVMe-oF" | "iSCSI";
  units: number;
  listeners: string;
  hosts: string;
  subsystem?: Subsystem;
  node?: TargetNode;
}

interface Connection { id: number; initiator_addr: string; target_node_name: string; state: string; thread_name: string }

function rowsOf(all: Inventory): Row[] {
  const rows: Row[] = [];
  for (const s of all.subsystems ?? []) {
    if (s.subtype === "Discovery") continue;
    rows.push({
      id: s.nqn, kind: "NVMe-oF", units: s.namespaces?.length ?? 0, listeners: s.listen_addresses.map(address).join(", "),
      hosts: s.allow_any_host ? "every host" : s.hosts.length === 1 ? s.hosts[0].nqn : format.plural(s.hosts.length, "host"), subsystem: s,
    });
  }
  for (const n of all.nodes ?? []) {
    rows.push({ id: n.name, kind: "iSCSI", units: n.luns.length, listeners: n.pg_ig_maps.map((m) => `portal group ${m.pg_tag}`).join(", "), hosts: n.pg_ig_maps.map((m) => `initiator group ${m.ig_tag}`).join(", "), node: n });
  }
  return rows;
}

// short returns the part of a name that the list shows, and by which it sorts.
const short = (r: Row) => r.id.slice(r.id.indexOf(":") + 1);

const columns: Column<Row>[] = [
  { key: "id", title: "Name", sorts: true, show: (r) => <span class="strong"><Ends text={short(r)} full={r.id} /></span> },
  { key: "kind", title: "Protocol", sorts: true, show: (r) => r.kind },
  { key: "units", title: "Volumes", sorts: true, number: true, show: (r) => r.units },
  { key: "listeners", title: "Listens at", sorts: true, show: (r) => <span class="clip" title={r.listeners}>{r.listeners || "nowhere"}</span> },
  { key: "hosts", title: "Admits", sorts: true, show: (r) => <span class={r.hosts === "every host" ? "problem" : "faint"}><Ends text={r.hosts} /></span> },
];

export function Exports() {
  const whole = useInventory(), early = useCell(firstLook), found = whole ?? early, error = useCell(inventoryError), here = useCell(route).values;
  const [text, setText, searched] = useSearch(), query = searched.toLowerCase();
  const sort: Sort = { key: here.sort?.replace(/^-/, "") || "id", down: here.sort?.startsWith("-") ?? false };
  useCell(allowed);
  const rows = useMemo(() => {
    const list = found ? rowsOf(found).filter((r) => (!here.kind || r.kind === here.kind) && (!query || `${r.id} ${r.listeners} ${r.hosts}`.toLowerCase().includes(query))) : [];
    const key = sort.key as "id" | "kind" | "units" | "listeners" | "hosts";
    const compare = format.byName();
    list.sort((a, b) => (key === "units" ? a.units - b.units : key === "id" ? compare(short(a), short(b)) || compare(a.id, b.id) : compare(a[key], b[key])));
    return sort.down ? list.reverse() : list;
  }, [found, query, here.kind, sort.key, sort.down]);
  useEffect(() => { if (query) announce(format.plural(rows.length, "export") + " found"); }, [rows.length]);
  const chosen = found && here.id ? rowsOf(found).find((r) => r.id === here.id) : undefined;
  const none = found && found.subsystems === null && found.nodes === null;
  return (
    <div class={`list-page ${chosen ? "with-panel" : ""}`}>
      <div class="toolbar">
        <Search value={text} label="Search name, address or host" onInput={setText} />
        <label class="pick"><span class="unseen">Protocol</span><select value={here.kind ?? ""} onChange={(e) => change({ kind: e.currentTarget.value })}><option value="">All protocols</option><option>NVMe-oF</option><option>iSCSI</option></select></label>
        <span class="grow" />
        <span class="faint figures shown">{found ? format.plural(rows.length, "export") : ""}</span>
        <Button icon="refresh" label={found ? `Read again. Read at ${format.time(found.at)}` : "Read again"} kind="quiet" onClick={() => void readInventory()} />
      </div>
      {error && <ErrorNote error={error} retry={() => void readInventory()} />}
      <div class="split">
        <Grid label="Exports" rows={rows} columns={columns} id={(r) => r.id} sort={sort} onSort={(k) => { const next = nextSort(sort, k); change({ sort: (next.down ? "-" : "") + next.key }); }}
          chosen={chosen?.id} onOpen={(r) => change({ id: r.id })}
          empty={!found ? <Empty title={error ? "The exports could not be read" : "Reading exports…"} /> : none ? <Empty title="Your roles do not permit listing exports">The methods are nvmf_get_subsystems and iscsi_get_target_nodes.</Empty> : <Empty title={query || here.kind ? "No export matches" : "Nothing is exported"} />} />
        {chosen && <ExportPanel key={chosen.id} row={chosen} all={found!} onClose={() => change({ id: undefined })} />}
      </div>
    </div>
  );
}

function VolumeLink({ bdev, all }: { bdev: string; all: Inventory }) {
  const v = all.volumes.find((o) => o.id === bdev || o.alias === bdev);
  return v ? <><a class="wrap" href={link("volumes", { id: v.id, q: v.name })}>{v.alias}</a>{Number.isNaN(v.size) ? null : <span class="faint figures">, {format.bytes(v.size)}</span>}</> : <span class="mono wrap">{bdev}</span>;
}

// Acting describes the open dialog. If withdraw is set, the dialog withdraws these hosts, or the whole export if the list is empty.
// Otherwise, it adds hosts and addresses.
interface Acting { volume: Volume; withdraw?: string[] }

// soleVolume returns the volume that a subsystem exports, if the subsystem exports nothing else.
const soleVolume = (s: Subsystem, all: Inventory) => (s.namespaces?.length === 1 ? all.volumes.find((v) => [v.id, v.alias].includes(s.namespaces![0].bdev_name ?? s.namespaces![0].name ?? "")) : undefined);

// singleCalls are the calls that change an export for which the console has no dialog.
const singleCalls = [
  ["Admit a host", "nvmf_subsystem_add_host"], ["Remove a host", "nvmf_subsystem_remove_host"], ["Add an address", "nvmf_subsystem_add_listener"],
  ["Remove a namespace", "nvmf_subsystem_remove_ns"], ["Withdraw the whole export", "nvmf_delete_subsystem"],
];

// Unchangeable says why the console has no dialog that changes an export, and which calls change it.
function Unchangeable({ subsystem: s }: { subsystem: Subsystem }) {
  const count = s.namespaces?.length ?? 0, calls = singleCalls.filter(([, method]) => can(method) && (count > 0 || method === "nvmf_delete_subsystem"));
  if (calls.length === 0) return null;
  return <section class="hint" aria-label="Change this export">
    <p>{count > 1 ? `Each host reaches all ${count} volumes, so a change concerns all of them. Make it with a single call in the explorer, and give it the NQN above:` :
      count === 0 ? "It exports nothing, as an interrupted export leaves it. Export its volume again, or delete it in the explorer with the NQN above:" :
        "It exports no logical volume that you see. Change it with a single call in the explorer, and give it the NQN above:"}</p>
    <ul class="plain">{calls.map(([task, method]) => <li key={method}>{task}: <a class="mono wrap" href={link("explorer", { method })}><MethodName name={method} /></a></li>)}</ul>
  </section>;
}

function ExportPanel({ row, all, onClose }: { row: Row; all: Inventory; onClose: () => void }) {
  const [acting, setActing] = useState<Acting | null>(null);
  const panel = useRef<HTMLElement>(null);
  useEffect(() => {
    announce(`Details of ${row.id}`);
    const before = document.activeElement as HTMLElement | null;
    panel.current?.focus({ preventScroll: true });
    return () => { if (before?.isConnected) before.focus({ preventScroll: true }); };
  }, []);
  const s = row.subsystem, n = row.node, volume = s && soleVolume(s, all);
  return (
    <aside class="panel" ref={panel} tabIndex={-1} aria-label={`Details of ${row.id}`} onKeyDown={(e) => { if (e.key === "Escape" && !acting) onClose(); }}>
      <header><h2 class="wrap">{row.id.replace(/^[^:]*:/, "")}</h2><Button icon="close" label="Close the details" kind="quiet" onClick={onClose} /></header>
      <p class="mono wrap">{row.id}<Copy text={row.id} label="Copy the name" /></p>
      {s && <>
        {volume ? <div class="buttons">
          {can("nvmf_subsystem_add_host") && <Button onClick={() => setActing({ volume })}>Add host…</Button>}
          {can("nvmf_delete_subsystem") && <Button kind="danger" onClick={() => setActing({ volume, withdraw: [] })}>Withdraw…</Button>}
        </div> : <Unchangeable subsystem={s} />}
        {!reportsANA(s) && <Alert level="warn">No ANA reporting: no snapshot of the volume is possible while a host is connected. SPDK cannot add it: withdraw the export, then export the volume again.</Alert>}
        <dl class="facts">
          <dt>Serial</dt><dd class="mono">{s.serial_number}</dd>
          <dt>Listeners</dt><dd>{s.listen_addresses.length ? <ul class="plain">{s.listen_addresses.map((a) => <li key={address(a)}>{address(a)}</li>)}</ul> : unseen("none: no host can connect", "none that you may see")}</dd>
          {can("nvmf_subsystem_get_listeners") && <><dt>ANA</dt><dd><ANA nqn={s.nqn} /></dd></>}
          <dt>Admitted</dt><dd>{s.allow_any_host ? <Alert level="warn">Every host may connect.</Alert> : s.hosts.length ? <ul class="plain hosts">{s.hosts.map((h) => (
            <li key={h.nqn}><span class="mono wrap">{h.nqn}</span>{h.dhchap_key && <span class="faint"> key {h.dhchap_key}</span>}
              {volume && can("nvmf_subsystem_remove_host") && <Button icon="close" kind="quiet" label={`Remove host ${h.nqn}`} onClick={() => setActing({ volume, withdraw: [h.nqn] })} />}</li>))}</ul> : unseen("no host", "no host that you may see")}</dd>
          {s.listen_addresses.length > 0 && <><dt>Connect</dt><dd><ul class="plain mono">{connectCommands(s.nqn, portalsOf(s)).map((c) => <li key={c} class="wrap"><CommandLine text={c} /><Copy text={c} label="Copy the command" /></li>)}</ul></dd></>}
          {can("nvmf_subsystem_get_controllers") && <><dt>Connected</dt><dd><Connected nqn={s.nqn} /></dd></>}
        </dl>
        <h3>Namespaces</h3>
        <dl class="facts">{(s.namespaces ?? []).map((ns) => <NamespaceRow key={ns.nsid} unit={ns.nsid} bdev={ns.bdev_name ?? ns.name ?? ""} all={all} />)}</dl>
        {!s.namespaces?.length && <p class="faint">None.</p>}
      </>}
      {n && <>
        <dl class="facts">
          <dt>Alias</dt><dd>{n.alias_name || "none"}</dd>
          <dt>Login</dt><dd>{n.disable_chap ? "without authentication" : n.require_chap ? (n.mutual_chap ? "CHAP in both directions" : "CHAP") : "CHAP if the initiator asks"}</dd>
          <dt>Maps</dt><dd>{n.pg_ig_maps.map((m) => `portal group ${m.pg_tag} to initiator group ${m.ig_tag}`).join("; ")}</dd>
          {can("iscsi_get_connections") && <><dt>Connected</dt><dd><Initiators node={n.name} /></dd></>}
        </dl>
        <h3>LUNs</h3>
        <dl class="facts">{n.luns.map((l) => <NamespaceRow key={l.lun_id} unit={l.lun_id} bdev={l.bdev_name} all={all} />)}</dl>
      </>}
      {acting && (acting.withdraw ? <WithdrawExport volume={acting.volume} nqn={row.id} hosts={acting.withdraw} onClose={() => setActing(null)} /> : <ExportVolume volume={acting.volume} onClose={() => setActing(null)} />)}
    </aside>
  );
}

const NamespaceRow = ({ unit, bdev, all }: { unit: number; bdev: string; all: Inventory }) => <><dt class="figures">{unit}</dt><dd><VolumeLink bdev={bdev} all={all} /></dd></>;

function Initiators({ node }: { node: string }) {
  const { data, error, refresh } = useLoad((signal) => call<Connection[]>("iscsi_get_connections", undefined, signal), [node]);
  if (error) return <ErrorNote error={error} retry={refresh} />;
  const own = data?.filter((c) => node.endsWith(":" + c.target_node_name));
  return <>{!own ? "…" : own.length === 0 ? "no initiator" : <ul class="plain mono">{own.map((c) => <li key={c.id}>{c.initiator_addr} <span class="faint">{c.state}</span></li>)}</ul>}</>;
}

interface Listener { address: Address; ana_states?: { ana_group?: number; anagrpid?: number; ana_state?: string; state?: string }[] }

// ANA shows a subsystem's ANA states. It queries the target only on demand, because SPDK pauses the subsystem to respond.
function ANA({ nqn }: { nqn: string }) {
  const [found, set] = useState<Listener[] | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const look = async () => {
    setError(null);
    try { set(await call<Listener[]>("nvmf_subsystem_get_listeners", { nqn })); } catch (e) { setError(e as Error); }
  };
  if (error) return <ErrorNote error={error} retry={() => void look()} />;
  if (!found) return <Button onClick={() => void look()}>Show states</Button>;
  const states = (l: Listener) => {
    const counts = new Map<string, number>();
    for (const a of l.ana_states ?? []) counts.set(a.ana_state ?? a.state ?? "?", (counts.get(a.ana_state ?? a.state ?? "?") ?? 0) + 1);
    return [...counts].map(([state, n]) => `${state.replaceAll("_", "-")} (${format.plural(n, "group")})`).join(", ") || "not reported";
  };
  return <ul class="plain">{found.map((l) => <li key={address(l.address)}>{address(l.address)}: {states(l)}</li>)}</ul>;
}
