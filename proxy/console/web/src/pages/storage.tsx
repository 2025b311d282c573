// The page that lists the target's disks, and the lvstores on them.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call } from "../api";
import * as format from "../format";
import { type Place, isUnused, placesOf, use } from "../model/disks";
import { allowed, can } from "../model/session";
import { Inventory, capacity, free, inventoryError, provisioned, readInventory, used, useInventory } from "../model/storage";
import { announce, change, link, route, useCell, useLoad, useSearch } from "../state";
import { Column, Grid, Sort, nextSort } from "../ui/grid";
import { Button, CapacityBar, Copy, Empty, Ends, ErrorNote, Search, ShareBar } from "../ui/parts";
import { AttachDisk, CreateStore, DeleteStore, FindStore, RemoveDisk, RenameStore, facts, removable } from "./storage_actions";

const share = (p: Place) => (p.store ? used(p.store) / capacity(p.store) : NaN);

const columns: Column<Place>[] = [
  { key: "name", title: "Disk", sorts: true, show: (p) => <span class="strong"><Ends text={p.name} /></span> },
  { key: "product", title: "Kind", sorts: true, show: (p) => <span class="clip" title={p.disk?.model}>{p.disk?.product || "not shown to you"}</span> },
  { key: "size", title: "Size", sorts: true, number: true, show: (p) => (p.disk ? format.bytes(p.disk.size) : "–") },
  { key: "use", title: "Used for", sorts: true, show: (p) => <span class={use(p) === "unused" ? "faint" : "clip"} title={use(p)}>{use(p)}</span> },
  { key: "used", title: "Allocated", sorts: true, number: true, show: (p) => (p.store ? <>{format.percent(share(p))} <ShareBar share={share(p)} label={`Allocated of ${p.store.name}`} /></> : "") },
];

const values: Record<string, (p: Place) => string | number> = {
  name: (p) => p.name, product: (p) => p.disk?.product ?? "", size: (p) => p.disk?.size ?? 0, use, used: (p) => share(p) || 0,
};

export function Storage() {
  const found = useInventory(), error = useCell(inventoryError), here = useCell(route).values;
  const [text, setText, searched] = useSearch(), query = searched.toLowerCase();
  const [attaching, setAttaching] = useState(false);
  const sort: Sort = { key: here.sort?.replace(/^-/, "") || "name", down: here.sort?.startsWith("-") ?? false };
  useCell(allowed);
  const places = useMemo(() => (found ? placesOf(found) : []), [found]);
  const rows = useMemo(() => {
    const list = places.filter((p) => (!here.use || (here.use === "unused" ? p.disk && isUnused(p.disk) : !!p.store)) && `${p.name} ${p.disk?.origin ?? ""} ${p.disk?.model ?? ""} ${use(p)}`.toLowerCase().includes(query));
    const value = values[sort.key] ?? values.name, compare = format.byName();
    list.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      return (typeof x === "number" ? x - (y as number) : compare(x, y as string)) || compare(a.name, b.name);
    });
    return sort.down ? list.reverse() : list;
  }, [places, query, here.use, sort.key, sort.down]);
  useEffect(() => { if (query) announce(format.plural(rows.length, "disk") + " found"); }, [rows.length]);
  const chosen = here.id ? places.find((p) => p.name === here.id) : undefined;
  const none = found?.refused.includes("bdev_get_bdevs") && found.refused.includes("bdev_lvol_get_lvstores");
  return (
    <div class={`list-page ${chosen ? "with-panel" : ""}`}>
      <div class="toolbar">
        <Search value={text} label="Search name, address or lvstore" onInput={setText} />
        <label class="pick"><span class="unseen">Use</span><select value={here.use ?? ""} onChange={(e) => change({ use: e.currentTarget.value })}><option value="">All disks</option><option value="store">With an lvstore</option><option value="unused">Unused</option></select></label>
        <span class="grow" />
        <span class="faint figures shown">{found ? format.plural(rows.length, "disk") : ""}</span>
        <Button icon="refresh" label={found ? `Read again. Read at ${format.time(found.at)}` : "Read again"} kind="quiet" onClick={() => void readInventory()} />
        {found && (can("bdev_aio_create") || can("bdev_nvme_attach_controller")) && <Button icon="plus" kind="primary" onClick={() => setAttaching(true)}>Attach a disk</Button>}
      </div>
      {error && <ErrorNote error={error} retry={() => void readInventory()} />}
      <div class="split">
        <Grid label="Disks and lvstores" rows={rows} columns={columns} id={(p) => p.name} sort={sort} onSort={(k) => { const next = nextSort(sort, k); change({ sort: (next.down ? "-" : "") + next.key }); }}
          chosen={chosen?.name} onOpen={(p) => change({ id: p.name })}
          empty={!found ? <Empty title={error ? "The disks could not be read" : "Reading disks…"} /> : none ? <Empty title="Your roles do not permit listing disks and lvstores">The methods are bdev_get_bdevs and bdev_lvol_get_lvstores.</Empty> : <Empty title={query || here.use ? "No disk matches" : "The target has no disks"}>{!query && !here.use && "Attach one, then create a store on it."}</Empty>} />
        {chosen && <PlacePanel key={chosen.name} place={chosen} all={found!} onClose={() => change({ id: undefined })} />}
      </div>
      {attaching && <AttachDisk all={found!} onClose={() => setAttaching(false)} />}
    </div>
  );
}

type Action = "" | "create" | "rename" | "delete" | "remove" | "find";

function PlacePanel({ place, all, onClose }: { place: Place; all: Inventory; onClose: () => void }) {
  const { disk, store } = place;
  const [action, setAction] = useState<Action>("");
  const panel = useRef<HTMLElement>(null);
  useEffect(() => {
    announce(`Details of ${place.name}`);
    const before = document.activeElement as HTMLElement | null;
    panel.current?.focus({ preventScroll: true });
    return () => { if (before?.isConnected) before.focus({ preventScroll: true }); };
  }, []);
  const close = () => setAction("");
  const info = useLoad(() => (disk && isUnused(disk) && can("bdev_examine") && can("spdkgate_target_get_info") ? call<{ examines_volumes?: boolean }>("spdkgate_target_get_info") : Promise.resolve(null)), [disk?.name]);
  const count = store ? all.volumes.filter((v) => v.store === store.name).length : 0;
  return (
    <aside class="panel" ref={panel} tabIndex={-1} aria-label={`Details of ${place.name}`} onKeyDown={(e) => { if (e.key === "Escape" && !action) onClose(); }}>
      <header><h2 class="wrap" title={place.name}>{place.name}</h2><Button icon="close" label="Close the details" kind="quiet" onClick={onClose} /></header>
      <div class="buttons">
        {store && can("bdev_lvol_rename_lvstore") && <Button onClick={() => setAction("rename")}>Rename the lvstore</Button>}
        {store && can("bdev_lvol_delete_lvstore") && <Button kind="danger" onClick={() => setAction("delete")}>Delete the lvstore</Button>}
        {disk && isUnused(disk) && can("bdev_lvol_create_lvstore") && <Button onClick={() => setAction("create")}>Create an lvstore</Button>}
        {disk && isUnused(disk) && info.data?.examines_volumes === false && <Button onClick={() => setAction("find")}>Find its lvstore</Button>}
        {disk && removable(disk, all) && <Button kind="danger" onClick={() => setAction("remove")}>Remove</Button>}
      </div>
      {disk && <dl class="facts">
        <dt>Kind</dt><dd>{disk.product || "–"}</dd>
        <dt>Size</dt><dd class="figures">{format.bytes(disk.size)} in blocks of {format.bytes(disk.blockSize)}</dd>
        {disk.origin && <><dt>Where</dt><dd class="mono wrap">{disk.origin}</dd></>}
        {disk.model && <><dt>Model</dt><dd>{disk.model}</dd></>}
        <dt>Used for</dt><dd>{use(place)}</dd>
        {disk.exports.length > 0 && <><dt>Exports</dt><dd><ul class="plain mono">{disk.exports.map((e) => <li key={e.name + e.unit}><a href={link("exports", { id: e.name })}>{e.name}</a></li>)}</ul></dd></>}
      </dl>}
      {store && <>
        <h3>Lvstore {store.name}</h3>
        <CapacityBar label={`Capacity of ${store.name}`} used={used(store)} provisioned={provisioned(all.volumes, store.name)} total={capacity(store)} />
        <dl class="facts">
          <dt>Volumes</dt><dd><a href={link("volumes", { store: store.name })}>{format.plural(count, "volume")}</a></dd>
          <dt>Free</dt><dd class="figures">{format.bytes(free(store))}</dd>
          <dt>Provisioned</dt><dd class="figures">{format.bytes(provisioned(all.volumes, store.name))}</dd>
          <dt>Size</dt><dd class="figures">{facts(store)}</dd>
          <dt>UUID</dt><dd class="mono">{store.uuid}<Copy text={store.uuid} label="Copy the UUID" /></dd>
        </dl>
      </>}
      {action === "create" && <CreateStore disk={disk!} stores={all.stores} onClose={close} />}
      {action === "rename" && <RenameStore store={store!} stores={all.stores} volumes={all.volumes} onClose={close} />}
      {action === "delete" && <DeleteStore store={store!} all={all} onClose={close} onDone={close} />}
      {action === "remove" && <RemoveDisk disk={disk!} all={all} onClose={close} onDone={onClose} />}
      {action === "find" && <FindStore disk={disk!} onClose={close} />}
    </aside>
  );
}
