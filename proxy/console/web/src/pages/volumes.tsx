// The page that lists all volumes and snapshots, with search, sorting, a tree, and actions.
import { useEffect, useMemo, useState } from "preact/hooks";
import * as format from "../format";
import { allowed, can } from "../model/session";
import { type Rate, operations, throughput, useRates, withoutPercentiles } from "../model/io";
import { Inventory, Volume, firstLook, inventoryError, readInventory, useInventory } from "../model/storage";
import { announce, change, route, useCell, useSearch } from "../state";
import { Column, Grid, Sort, nextSort } from "../ui/grid";
import { Button, Empty, Ends, ErrorNote, Search } from "../ui/parts";
import { CreateVolume } from "./volume_actions";
import { VolumePanel } from "./volume_panel";

const kinds = ["volume", "clone", "snapshot"];

const columns: Column<Volume>[] = [
  { key: "name", title: "Name", sorts: true, show: (v) => <><span class={`kind ${v.kind}`} role="img" aria-label={v.kind} title={v.kind}>{v.kind[0].toUpperCase()}</span><Ends text={v.name} /></> },
  { key: "store", title: "Lvstore", sorts: true, show: (v) => v.store },
  { key: "size", title: "Size", sorts: true, number: true, show: (v) => format.bytes(v.size) },
  { key: "used", title: "Allocated", sorts: true, number: true, show: (v) => <>{format.bytes(v.used)}<span class={`share ${Number.isNaN(v.size) ? "unknown" : ""}`} aria-hidden="true"><span style={{ width: `${Math.min(1, v.used / v.size || 0) * 100}%` }} /></span></> },
  { key: "limits", title: "Limits", sorts: true, show: (v) => <span title={limits(v)}>{limits(v)}</span> },
  { key: "exports", title: "Exports", sorts: true, show: (v) => <span class="faint"><Ends text={exportsOf(v)} full={v.exports.map((e) => e.name).join(", ")} /></span> },
];

export function limits(v: Volume): string {
  const l = v.limits;
  if (!l) return "";
  const parts = [];
  if (l.rw_ios_per_sec) parts.push(`${format.short(l.rw_ios_per_sec)} IO/s`);
  if (l.rw_mbytes_per_sec) parts.push(`${l.rw_mbytes_per_sec} MiB/s`);
  if (l.r_mbytes_per_sec) parts.push(`read ${l.r_mbytes_per_sec} MiB/s`);
  if (l.w_mbytes_per_sec) parts.push(`write ${l.w_mbytes_per_sec} MiB/s`);
  return parts.join(", ");
}

function exportsOf(v: Volume): string {
  if (v.exports.length === 0) return "";
  const { kind, name } = v.exports[0], short = name.replace(/^[^:]*:/, "");
  return (kind === "NVMe-oF" ? short : `${kind} ${short}`) + (v.exports.length > 1 ? ` and ${v.exports.length - 1} more` : "");
}

// ioColumns returns the columns that show the I/O of the last minute.
const ioColumns = (rates: Map<string, Rate>): Column<Volume>[] => [{
  key: "io", title: "I/O", sorts: true, number: true,
  show: (v) => { const s = rates.get(v.id); return s ? <span title={`read ${format.perSecond(s.read_ios_per_sec)}, write ${format.perSecond(s.write_ios_per_sec)}, ${format.bytesPerSecond(throughput(s))}, in the last minute`}>{format.perSecond(operations(s))}</span> : ""; },
}, latencyColumn(rates, "p50", "latency_p50_us"), latencyColumn(rates, "p99", "latency_p99_us")];

const latencyColumn = (rates: Map<string, Rate>, title: string, member: "latency_p50_us" | "latency_p99_us"): Column<Volume> => ({
  key: title, title, sorts: true, number: true,
  show: (v) => {
    const s = rates.get(v.id), us = s?.[member];
    if (!s) return "";
    return us === undefined ? <span class="faint" title={withoutPercentiles(s, false)}>{s.histogram === "off" ? "off" : "–"}</span> : format.microseconds(us);
  },
});

// ioValues contains, for each column of ioColumns, the function that returns the value to sort by. Volumes without a value sort below all
// others.
const ioValues: Record<string, (s: Rate | undefined) => number> = { io: operations, p50: (s) => s?.latency_p50_us ?? -1, p99: (s) => s?.latency_p99_us ?? -1 };

const values: Record<string, (v: Volume) => number | string> = {
  name: (v) => v.name, store: (v) => v.store, size: (v) => v.size, used: (v) => v.used || 0, limits: (v) => v.limits?.rw_ios_per_sec || limits(v) ? 1 : 0,
  exports: (v) => v.exports.length ? v.exports[0].name : "",
};

function ordered(list: Volume[], sort: Sort, rates: Map<string, Rate> | null): Volume[] {
  const io = ioValues[sort.key], value = io ? (v: Volume) => io(rates?.get(v.id)) : values[sort.key] ?? values.name, compare = format.byName();
  const keyed = list.map((v) => ({ v, key: value(v) }));
  keyed.sort((a, b) => typeof a.key === "number" ? a.key - (b.key as number) : compare(a.key, b.key as string));
  if (sort.down) keyed.reverse();
  return keyed.map((k) => k.v);
}

function matches(v: Volume, words: string[]): boolean {
  return words.every((w) => v.alias.toLowerCase().includes(w) || v.id.startsWith(w) || v.exports.some((e) => e.name.toLowerCase().includes(w)));
}

interface Branch { volume: Volume; depth: number; open?: boolean }

// branches lists the tree of snapshots and clones. During a search, all ancestors of the matches are open.
function branches(all: Volume[], shown: Volume[], open: Set<string>, searching: boolean): Branch[] {
  const byAlias = new Map(all.map((v) => [v.alias, v]));
  const wanted = new Set(shown);
  if (searching) for (const v of shown) for (let up = byAlias.get(v.base), n = 0; up && n < 1000 && !wanted.has(up); up = byAlias.get(up.base), n++) wanted.add(up);
  const children = new Map<string, Volume[]>();
  const roots: Volume[] = [];
  const order = new Map(shown.map((v, i) => [v, i]));
  for (const v of [...wanted].sort((a, b) => (order.get(a) ?? -1) - (order.get(b) ?? -1))) {
    const up = byAlias.get(v.base);
    if (up && wanted.has(up)) children.set(up.alias, [...(children.get(up.alias) ?? []), v]);
    else roots.push(v);
  }
  const list: Branch[] = [];
  const add = (v: Volume, depth: number) => {
    const below = children.get(v.alias);
    const isOpen = below ? searching || open.has(v.id) : undefined;
    list.push({ volume: v, depth, open: isOpen });
    if (isOpen) for (const c of below!) add(c, depth + 1);
  };
  for (const v of roots) add(v, 0);
  return list;
}

export function Volumes() {
  const whole = useInventory(), early = useCell(firstLook), error = useCell(inventoryError), here = useCell(route).values;
  const may = useCell(allowed);
  const [text, setText, query] = useSearch();
  const rates = useRates();
  const [open, setOpen] = useState(new Set<string>());
  const [creating, setCreating] = useState(false);
  const sort: Sort = { key: here.sort?.replace(/^-/, "") || "name", down: here.sort?.startsWith("-") ?? false };
  const tree = here.view === "tree", kind = kinds.includes(here.kind ?? "") ? here.kind : "";

  // firstLook contains neither parents nor sizes.
  const found = whole ?? (early?.volumes.length && !tree && ["name", "store", "exports", ...Object.keys(ioValues)].includes(sort.key) ? early : null);

  const shown = useMemo(() => {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return ordered((found?.volumes ?? []).filter((v) => (!kind || v.kind === kind) && (!here.store || v.store === here.store) && matches(v, words)), sort, rates);
  }, [found, query, kind, here.store, sort.key, sort.down, sort.key in ioValues ? rates : null]);
  const rows: Branch[] = useMemo(
    () => (tree ? branches(found?.volumes ?? [], shown, open, query !== "") : shown.map((volume) => ({ volume, depth: 0 }))), [tree, shown, open, found, query]);
  useEffect(() => { if (found && query) announce(format.plural(shown.length, "volume") + " found"); }, [shown.length, query]);

  const chosen = here.id ? whole?.volumes.find((v) => v.id === here.id) : undefined;
  const toggle = (b: Branch, opened: boolean) => {
    const next = new Set(open);
    if (opened) next.add(b.volume.id);
    else next.delete(b.volume.id);
    setOpen(next);
  };
  const branchColumns = useMemo(() => (rates ? columns.toSpliced(-1, 0, ...ioColumns(rates)) : columns).map((c): Column<Branch> => ({ ...c, show: (b) => c.show(b.volume) })), [rates]);
  return (
    <div class={`list-page ${chosen ? "with-panel" : ""}`}>
      <div class="toolbar">
        <Search value={text} label="Search name, UUID or export" onInput={setText} />
        <label class="pick"><span class="unseen">Kind</span><select value={kind} onChange={(e) => change({ kind: e.currentTarget.value })}>
          <option value="">All kinds</option><option value="volume">Volumes</option><option value="clone">Clones</option><option value="snapshot">Snapshots</option></select></label>
        <label class="pick"><span class="unseen">Lvstore</span><select value={here.store ?? ""} onChange={(e) => change({ store: e.currentTarget.value })}>
          <option value="">All lvstores</option>{(found?.stores ?? []).map((s) => <option key={s.uuid} value={s.name}>{s.name}</option>)}</select></label>
        <div class="choice" role="group" aria-label="View">
          <Button pressed={!tree} onClick={() => change({ view: undefined })}>List</Button><Button pressed={tree} onClick={() => change({ view: "tree" })}>Tree</Button>
        </div>
        <span class="grow" />
        <span class="faint figures shown">{found ? `${format.count(shown.length)} of ${format.plural(found.volumes.length, "volume")}${whole ? "" : ", reading sizes…"}` : ""}</span>
        <Button icon="refresh" label={found ? `Read again. Read at ${format.time(found.at)}` : "Read again"} kind="quiet" onClick={() => void readInventory()} />
        {may && can("bdev_lvol_create") && <Button kind="primary" icon="plus" disabled={!whole} onClick={() => setCreating(true)}>Create</Button>}
      </div>
      {error && <ErrorNote error={error} retry={() => void readInventory()} />}
      <div class="split">
        <Grid<Branch> label={tree ? "Volumes as a tree" : "Volumes"} rows={rows} columns={branchColumns} id={(b) => b.volume.id} sort={sort}
          onSort={(k) => { const next = nextSort(sort, k); change({ sort: (next.down ? "-" : "") + next.key }); }}
          chosen={chosen?.id} onOpen={(b) => change({ id: b.volume.id })}
          depth={tree ? (b) => b.depth : undefined} open={tree ? (b) => b.open : undefined} onToggle={toggle} empty={<Nothing found={found} error={error} />} />
        {chosen && <VolumePanel key={chosen.id} volume={chosen} all={whole!} onClose={() => change({ id: undefined })} />}
      </div>
      {creating && <CreateVolume stores={whole!.stores} volumes={whole!.volumes} store={here.store} onClose={() => setCreating(false)} />}
    </div>
  );
}

function Nothing({ found, error }: { found: Inventory | null; error: Error | null }) {
  if (!found) return error ? <Empty title="The volumes could not be read" /> : <Empty title="Reading volumes…" />;
  if (found.refused.includes("bdev_get_bdevs")) return <Empty title="Your roles do not permit listing volumes">The method is bdev_get_bdevs.</Empty>;
  return found.volumes.length ? <Empty title="No volume matches">Change the search, or choose all kinds and lvstores.</Empty> : <Empty title="No volumes yet">Create one in an lvstore.</Empty>;
}
