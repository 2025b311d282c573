// The page that shows how full and how busy the storage server is, and what needs attention.
import { useEffect, useMemo } from "preact/hooks";
import { CallError, call } from "../api";
import * as format from "../format";
import { Sample, busiest, conditions, eventMethod, eventState, events, interval, samples, samplesError, targetDown, watched } from "../model/activity";
import { allowed, session } from "../model/session";
import { Store, capacity, free, freshInventory, inventory, provisioned, used } from "../model/storage";
import { Figures, readFigures } from "../model/figures";
import { Loaded, link, useCell, useLoad } from "../state";
import { GrafanaLink } from "../ui/grafana";
import { Quota } from "./quota";
import { Alert, CapacityBar, Empty, ErrorNote, ShareBar } from "../ui/parts";
import { Line, Plot } from "../ui/plot";

interface Reactors { tick_rate: number; reactors: { lcore: number; busy: number; idle: number }[] }

interface Saved { file: string; saved_at?: string; pending: boolean; missing_count: number; not_restorable?: { raid: string; reason: string }[]; unsettled: boolean; failed: boolean; chosen_at?: string }

interface TargetInfo { examines_volumes?: boolean; acknowledged: boolean }

interface Look { stores: Store[] | null; version: string; reactors: Reactors | null; before: Reactors | null }

let lastReactors: Reactors | null = null;

// hidden reports whether policy denies a method to a user. Methods that administrators cannot call do not exist on this proxy and target.
const hidden = (may: Set<string>, method: string) => !may.has(method) && !session.value?.administrator;

const orNull = async <T,>(p: Promise<T>): Promise<T | null> => {
  try { return await p; } catch (e) {
    if (e instanceof CallError && (e.kind === "denied" || e.kind === "missing" || e.kind === "spdk")) return null;
    throw e;
  }
};

async function lookAtTarget(signal: AbortSignal): Promise<Look> {
  const before = lastReactors;
  const [stores, version, reactors] = await Promise.all([
    orNull(call<Store[]>("bdev_lvol_get_lvstores", undefined, signal)),
    orNull(call<{ version: string }>("spdk_get_version", undefined, signal)),
    session.value?.tenant ? null : orNull(call<Reactors>("framework_get_reactors", undefined, signal)),
  ]);
  lastReactors = reactors;
  if (stores) watched.value = stores;
  return { stores, version: version?.version ?? "", reactors, before };
}

export function Overview() {
  const look = useLoad(lookAtTarget, [], interval);
  const may = useCell(allowed);
  const status = useLoad(() => readStatus(may), [may], 30000);
  const found = useCell(inventory);
  const tenant = useCell(session)?.tenant;
  const figures = useLoad(readFigures, [], 60000);
  const none = figures.data === null || (!!figures.error && !figures.data);
  useEffect(() => { if (none) void freshInventory(120000); }, [none]);
  const down = useCell(targetDown);
  if (!look.data && look.error) return <ErrorNote error={look.error} retry={look.refresh} />;
  const stores = look.data?.stores;
  const given = (name: string) => figures.data?.provisioned.get(name) ?? (found ? provisioned(found.volumes, name) : undefined);
  const volumes = figures.data ? figures.data.volumes + figures.data.snapshots : found?.volumes.length;
  return (
    <div class="overview">
      {look.error && !down && <ErrorNote error={look.error} retry={look.refresh} />}
      <Warnings look={look} status={status} given={given} figures={figures.data} />
      <Tiles look={look.data} status={status.data} volumes={volumes} started={figures.data?.started} />
      <section class="card stores">
        <h2>Lvstores</h2>
        {!look.data ? <p class="faint">Loading…</p> : stores === null ? <Empty title="Your roles do not permit listing lvstores">The method is bdev_lvol_get_lvstores.</Empty> :
          stores!.length === 0 ? <Empty title="No lvstores">Create one on the page <a href={link("storage")}>Storage</a>.</Empty> :
            <ul>{stores!.map((s) => <StoreRow key={s.uuid} store={s} provisioned={given(s.name)} />)}</ul>}
      </section>
      {tenant && <Quota tenant={tenant} />}
      <Plots />
      <GrafanaLink />
      <div class="two">
        {tenant ? <Busiest /> : <Reactors_ now={look.data?.reactors ?? null} before={look.data?.before ?? null} loading={!look.data} />}
        <Events />
      </div>
    </div>
  );
}

function StoreRow({ store, provisioned: given }: { store: Store; provisioned?: number }) {
  const total = capacity(store);
  return (
    <li>
      <div class="line"><a class="strong" href={link("volumes", { store: store.name })}>{store.name}</a>{store.base_bdev && <span class="faint">on {store.base_bdev}</span>}<span class="grow" /><span class="figures"><b>{format.bytes(used(store))}</b> of {format.bytes(total)} used</span></div>
      <CapacityBar label={`Capacity of ${store.name}`} used={used(store)} provisioned={given} total={total} />
      <div class="line faint figures"><span>{format.bytes(free(store))} free</span><span class="grow" /><span class={given !== undefined && given > total ? "over" : ""}>{given === undefined ? "\u00a0" : `${format.bytes(given)} provisioned to volumes, ${format.percent(given / total)}`}</span></div>
    </li>
  );
}

interface Status { saved: Saved | null; target: TargetInfo | null; certificate: number | null; started: number | null; restarted: number; targetUp: boolean; tokens: { user: string; at: number }[] }

async function readStatus(may: Set<string> | null): Promise<Status> {
  const [saved, target, text] = await Promise.all([
    may?.has("spdkgate_config_get_status") ? orNull(call<Saved>("spdkgate_config_get_status")) : null,
    may?.has("spdkgate_target_get_info") ? orNull(call<TargetInfo>("spdkgate_target_get_info")) : null,
    may?.has("spdkgate_get_metrics") && !session.value?.tenant ? orNull(call<string>("spdkgate_get_metrics")) : null,
  ]);
  const one = (name: string) => (text ? format.metric(text, "spdk_proxy_" + name).map((m) => m.value) : []);
  return {
    saved, target, certificate: Math.min(...one("certificate_expiry_timestamp_seconds")),
    started: one("start_time_seconds")[0] ?? null, restarted: one("target_reconnects_total")[0] ?? 0, targetUp: text === null || one("target_up")[0] !== 0,
    tokens: text ? format.metric(text, "spdk_proxy_token_expiry_timestamp_seconds").map((m) => ({ user: m.labels.user, at: m.value })) : [],
  };
}

function Warnings({ look, status, given, figures }: { look: Loaded<Look>; status: Loaded<Status>; given: (store: string) => number | undefined; figures?: Figures | null }) {
  const list: { level: "bad" | "warn"; text: string }[] = [];
  const log = useCell(events), lasting = useCell(conditions), down = useCell(targetDown), may = useCell(allowed), tenant = useCell(session)?.tenant;
  if (down || (status.data && !status.data.targetUp)) list.push({ level: "bad", text: "The target does not answer. Figures on this page are from before. Check that spdk_tgt runs." });
  for (const s of look.data?.stores ?? []) {
    const share = used(s) / capacity(s), owed = given(s.name);
    if (share >= 0.95) list.push({ level: "bad", text: `Lvstore ${s.name} is almost full: ${format.bytes(free(s))} are free. Writes to thin volumes fail when it is full.` });
    else if (share >= 0.85) list.push({ level: "warn", text: `Lvstore ${s.name} is ${format.percent(share)} full: ${format.bytes(free(s))} are free.` });
    if (owed !== undefined && owed > capacity(s) * 1.5 && share >= 0.6) list.push({ level: "warn", text: `Lvstore ${s.name} is overprovisioned: its volumes can take ${format.percent(owed / capacity(s))} of its capacity. Writes to thin volumes fail when it is full.` });
  }
  const target = status.data?.target;
  if (target && target.examines_volumes !== false && !down && status.data!.targetUp) {
    const does = target.examines_volumes ? "The target loads what hosts write into their volumes (bdev_auto_examine is on)." : "The proxy does not know whether the target loads what hosts write into their volumes (bdev_auto_examine).";
    list.push({ level: "warn", text: `${does} ${target.acknowledged ? "The proxy's configuration accepts this, so tenants are not safe from each other." : "Tenants and raw block volumes of pods are refused."} The manual says how to switch it off, in docs/target.md.` });
  }
  const saved = status.data?.saved;
  if (saved?.failed && !down) list.push({ level: "bad", text: "Saving the target's configuration failed. After a restart, the target would have an older one. The proxy's log says why." });
  else if (saved?.missing_count) list.push({ level: "bad", text: `The target lacks ${format.plural(saved.missing_count, "object")} of its saved configuration. They stay in the saved file, and the proxy saves everything else: spdk-proxy saved diff lists them.` });
  else if (saved?.chosen_at) list.push({ level: "warn", text: `Another saved configuration was chosen on ${format.date(saved.chosen_at)}, and the target has not loaded it yet. Restart spdk_tgt to load it.` });
  else if (saved?.pending && !down) list.push({ level: "warn", text: "The target's configuration has changes that are not saved yet." });
  for (const lost of saved?.not_restorable ?? []) list.push({ level: "warn", text: `A restart of the target would not restore RAID ${lost.raid}: ${lost.reason}.` });
  const days = status.data?.certificate ? (status.data.certificate - Date.now() / 1000) / 86400 : NaN;
  if (days < 0) list.push({ level: "bad", text: "The proxy's certificate has expired. Clients refuse to connect." });
  else if (days < 30) list.push({ level: days < 7 ? "bad" : "warn", text: `The proxy's certificate expires in ${format.plural(Math.floor(days), "day")}. Replace its files; the proxy reads them again by itself.` });
  for (const t of status.data?.tokens ?? []) {
    const left = (t.at - Date.now() / 1000) / 86400;
    if (left < 14) list.push({ level: "warn", text: left < 0 ? `A token of ${t.user} has expired.` : `A token of ${t.user} expires in ${format.plural(Math.floor(left), "day")}.` });
  }
  for (const c of lasting) {
    const known = c.type === "lvstore_full" || (c.type === "certificate_expires" && Number.isFinite(days));
    if (!known) list.push({ level: "warn", text: sentence(c.text) });
  }
  const seen = log.find((e) => e.type === "target_restarted");
  const restarted = seen ? new Date(seen.time).getTime() : figures && figures.restarts > 0 ? figures.started * 1000 : NaN;
  if (Date.now() - restarted < 86400000) list.push({ level: "warn", text: `The target restarted on ${format.date(restarted)}.` });
  const ready = look.data && status.data;
  const unread = [
    ...(look.data && look.data.stores === null ? ["the lvstores"] : []),
    ...(may && !tenant && hidden(may, "spdkgate_config_get_status") ? ["the state of the saved configuration"] : []),
    ...(may && !tenant && hidden(may, "spdkgate_get_metrics") ? ["when certificates and tokens expire"] : []),
  ];
  return (
    <section class="warnings" aria-label="Warnings" aria-live="polite">
      {list.length ? list.map((w) => <Alert key={w.text} level={w.level}>{w.text}</Alert>) :
        <p class="calm">{!ready || !may ? "\u00a0" : unread.length ? <Alert level="info">No warnings in what you may read. Your roles do not permit reading {unread.join(" and ")}.</Alert> : <Alert level="good">{tenant ? `No warnings about tenant ${tenant}` : "No warnings"}</Alert>}</p>}
    </section>
  );
}

const sentence = (text: string) => text[0].toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".");

function Tiles({ look, status, volumes, started }: { look?: Look; status?: Status; volumes?: number; started?: number }) {
  const r = look?.reactors, may = useCell(allowed);
  const uptime = started ? Date.now() / 1000 - started : r ? Math.max(...r.reactors.map((c) => (c.busy + c.idle) / r.tick_rate)) : NaN;
  const totals = (look?.stores ?? []).reduce((t, s) => ({ used: t.used + used(s), all: t.all + capacity(s) }), { used: 0, all: 0 });
  const saved = status?.saved;
  const tiles: [string, string, string, boolean?][] = [ // the last element is true for figures of the whole target, which tenants cannot see
    ["SPDK", look ? session.value?.release ?? (/v\d[\w.-]*/.exec(look.version)?.[0] ?? "–") : "", look ? `proxy ${session.value?.version ?? ""}` : ""],
    ["Uptime of the target", look ? format.duration(uptime) : "", uptime > 0 ? `since ${format.date(Date.now() - uptime * 1000)}` : !look || !may ? "" : hidden(may, "framework_get_reactors") ? "not shown to you" : "not reported by this target", true],
    ["Capacity used", look ? (look.stores ? format.percent(totals.used / totals.all) : "–") : "", look?.stores ? `${format.bytes(totals.used)} of ${format.bytes(totals.all)}` : ""],
    ["Volumes", volumes === undefined ? "" : format.count(volumes), volumes === undefined ? "" : "with snapshots and clones"],
    ["Saved configuration", status ? (saved ? (saved.failed ? "Failed" : saved.pending ? "Pending" : "Saved") : "–") : "", saved?.saved_at ? format.date(saved.saved_at) : !status || !may ? "" : hidden(may, "spdkgate_config_get_status") ? "not shown to you" : "not saved by the proxy", true],
  ];
  return (
    <dl class="tiles">
      {tiles.filter((t) => !t[3] || !session.value?.tenant).map(([name, value, about]) => <div class="card" key={name}><dt>{name}</dt><dd><b>{value || "\u00a0"}</b><span class="faint" title={about}>{about || "\u00a0"}</span></dd></div>)}
    </dl>
  );
}

function Plots() {
  const list = useCell(samples), down = useCell(targetDown), problem = useCell(samplesError);
  const times = useMemo(() => list.map((s) => s.at), [list]);
  const lines = (read: (s: Sample) => number | null, write: (s: Sample) => number | null): Line[] => [
    { name: "Read", color: "--line-a", values: list.map(read) }, { name: "Write", color: "--line-b", values: list.map(write) },
  ];
  return (
    <section aria-label="Activity">
      <h2 class="unseen">Activity</h2>
      {problem && !down && <Alert level="info">No activity is shown: {problem}</Alert>}
      <div class="plots">
        <Plot title="Operations" times={times} format={format.perSecond} lines={lines((s) => s.readOps, (s) => s.writeOps)} />
        <Plot title="Throughput" binary times={times} format={format.bytesPerSecond} lines={lines((s) => s.readBytes, (s) => s.writeBytes)} />
        <Plot title="Mean latency" times={times} format={format.microseconds} lines={lines((s) => s.readLatency, (s) => s.writeLatency)} />
      </div>
      <p class="faint small">{session.value?.tenant ? "I/O of your volumes" : "I/O of the devices below the lvstores"}, every {interval / 1000} s while the console is visible.</p>
    </section>
  );
}

function Reactors_({ now, before, loading }: { now: Reactors | null; before: Reactors | null; loading: boolean }) {
  const busy = (core: number) => {
    const a = before?.reactors.find((r) => r.lcore === core), b = now!.reactors.find((r) => r.lcore === core)!;
    const total = a ? b.busy + b.idle - a.busy - a.idle : b.busy + b.idle;
    return total > 0 ? (a ? b.busy - a.busy : b.busy) / total : 0;
  };
  return (
    <section class="card reactors">
      <h2>Reactors</h2>
      {now ? <ul>{now.reactors.map((r) => <li key={r.lcore}><span>Core {r.lcore}</span><ShareBar share={busy(r.lcore)} label={`Core ${r.lcore} busy`} /><b class="figures">{format.percent(busy(r.lcore))}</b></li>)}</ul> :
        <p class="faint">{loading ? "Loading…" : "Not available: the method framework_get_reactors is refused, or the target does not have it."}</p>}
    </section>
  );
}

// Busiest lists the tenant's volumes with the most I/O.
function Busiest() {
  const list = useCell(busiest), problem = useCell(samplesError);
  return (
    <section class="card busiest">
      <h2>Busiest volumes</h2>
      {!list ? <p class="faint">{problem ? "Not known" : "Loading…"}</p> : list.length === 0 ? <p class="faint">No I/O at your volumes at present.</p> :
        <table><thead><tr><th scope="col">Volume</th><th scope="col">Operations</th><th scope="col">Throughput</th><th scope="col">Mean latency</th></tr></thead>
          <tbody>{list.map((r) => <tr key={r.name}><td><a href={link("volumes", { q: r.name })}>{r.name}</a></td><td class="figures">{format.perSecond(r.ops)}</td><td class="figures">{format.bytesPerSecond(r.bytes)}</td><td class="figures">{r.latency === null ? "–" : format.microseconds(r.latency)}</td></tr>)}</tbody></table>}
    </section>
  );
}

function Events() {
  const list = useCell(events), state = useCell(eventState), may = useCell(allowed);
  const none = may && !may.has(eventMethod) ? "Your roles do not permit reading events." : state === "open" ? "Nothing happened since you opened the console." :
    state === "closed" ? "Events are not available. Reload the page to try again." : "Connecting…";
  return (
    <section class="card events">
      <h2>Events</h2>
      {list.length === 0 ? <p class="faint">{none}</p> :
        <ul>{list.slice(0, 8).map((e) => <li key={e.id}><time class="figures">{format.time(e.time)}</time><span>{e.text || `${e.type} ${e.object ?? ""}`}</span></li>)}</ul>}
    </section>
  );
}
