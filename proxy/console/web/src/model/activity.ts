// This module collects events, and the I/O of the stores' devices or of a tenant's volumes over the last minutes. It does so even while
// other pages are shown.
import { CallError, call, listen, onAnswer } from "../api";
import { Cell } from "../state";
import { document_ } from "./document";
import { Store, inventoryStale } from "./storage";
import { session } from "./session";

interface Statistics {
  tick_rate: number;
  ticks: number;
  bdevs?: {
    name: string;
    bytes_read?: number; num_read_ops?: number; bytes_written?: number; num_write_ops?: number;
    read_latency_ticks?: number; write_latency_ticks?: number;
  }[];
}

type Counts = NonNullable<Statistics["bdevs"]>[number];

interface Reading { at: number; rate: number; counts: Map<string, Counts> }

// A Sample is the I/O between two readings. Latencies are in microseconds, or null if there was no I/O.
export interface Sample {
  at: number; // seconds since 1970
  readOps: number; writeOps: number; readBytes: number; writeBytes: number;
  readLatency: number | null; writeLatency: number | null;
}

export const interval = 5000;
const kept = 60;

// watched contains the stores whose devices are sampled.
export const watched = new Cell<Store[]>([]);

export const samples = new Cell<Sample[]>([]);
export const samplesError = new Cell("");
let before: Reading | null = null;
let notBefore = 0; // when the next reading may begin, in ms since 1970

// A Rate is the I/O of one volume between two readings.
export interface Rate { name: string; ops: number; bytes: number; latency: number | null }

// busiest contains the tenant's volumes with the most I/O, or null while they are unknown.
export const busiest = new Cell<Rate[] | null>(null);

// targetDown contains whether the target does not respond.
export const targetDown = new Cell(false);

onAnswer((method, error) => {
  if (error?.status === 502) targetDown.value = true;
  else if (!error && !method.startsWith("spdkgate_")) targetDown.value = false; // the proxy itself serves spdkgate_*
});

function forget() {
  before = own = null;
  notBefore = 0;
  busiest.value = null;
  targetDown.value = false;
  samples.value = [];
  samplesError.value = "";
  watched.value = [];
  events.value = [];
  conditions.value = [];
}

// sampleRegularly samples while the console is visible.
export function sampleRegularly() {
  forget();
  const run = () => { if (!document.hidden) void sample(watched.value); };
  const timer = setInterval(run, interval), stop = watched.follow(() => { if (!before) run(); });
  return () => { clearInterval(timer); stop(); };
}

let sampling = false;

const noSuchObject = -19; // SPDK's error code

async function sample(stores: Store[]) {
  const ofTenant = session.value?.tenant != null, began = Date.now();
  if (sampling || began < notBefore || (!ofTenant && stores.length === 0)) return;
  sampling = true;
  try {
    // A tenant may not read the devices below its stores, so it gets the I/O of its volumes.
    const names = ofTenant ? await ownVolumes() : new Map(stores.map((s) => [s.base_bdev, s.base_bdev]));
    const read = names.size > 0 ? await statistics([...names.keys()]) : null;
    if (ofTenant) notBefore = Date.now() + 4 * (Date.now() - began); // with thousands of volumes, a reading keeps the target busy
    samplesError.value = "";
    if (!read) {
      before = null;
      busiest.value = [];
      return;
    }
    const old = before, now = before = { at: read.ticks, rate: read.tick_rate, counts: new Map((read.bdevs ?? []).map((b) => [b.name, b])) };
    const seconds = old ? (now.at - old.at) / now.rate : 0;
    if (!old || seconds <= 0 || seconds > 60) return;
    const total = between(old, now);
    const latency = (ticks: number, ops: number) => (ops > 0 && ticks >= 0 ? (ticks / ops / now.rate) * 1e6 : null);
    samples.value = [...samples.value.slice(1 - kept), {
      at: Date.now() / 1000,
      readOps: total.readOps / seconds, writeOps: total.writeOps / seconds,
      readBytes: total.readBytes / seconds, writeBytes: total.writeBytes / seconds,
      readLatency: latency(total.readTicks, total.readOps), writeLatency: latency(total.writeTicks, total.writeOps),
    }];
    if (ofTenant) busiest.value = total.each.filter((o) => o.ops > 0).sort((a, b) => b.ops - a.ops).slice(0, 5)
      .map((o) => ({ name: names.get(o.name) ?? o.name, ops: o.ops / seconds, bytes: o.bytes / seconds, latency: latency(o.ticks, o.ops) }));
  } catch (e) {
    const deleted = ofTenant && e instanceof CallError && e.code === noSuchObject; // a volume was deleted since it was listed
    own = null;
    if (deleted) return;
    before = null;
    samplesError.value = (e as Error).message;
  } finally {
    sampling = false;
  }
}

// own maps the names of bdevs to the names of the tenant's volumes. It is null if the volumes must be listed again.
let own: Map<string, string> | null = null;
let ownAt = 0;

async function ownVolumes(): Promise<Map<string, string>> {
  if (own && Date.now() - ownAt < 60000) return own;
  const list = await call<{ uuid: string; alias: string }[]>("bdev_lvol_get_lvols");
  ownAt = Date.now();
  return own = new Map(list.map((v) => [v.uuid, v.alias]));
}

const atOnce = 1024; // maximum number of names that SPDK accepts in one call
const oneByOne = 256; // maximum number of bdevs that are read one by one, on releases without that parameter

// statistics queries several bdevs in one call if the target's release has a parameter for that.
async function statistics(names: string[]): Promise<Statistics> {
  const method = document_.value?.methods.find((m) => m.name === "bdev_get_iostat");
  const parts: object[] = [];
  if (method?.params.some((p) => p.name === "names")) for (let i = 0; i < names.length; i += atOnce) parts.push({ names: names.slice(i, i + atOnce) });
  else if (names.length > oneByOne) throw new Error(`this release of SPDK reports the I/O of one bdev for each call, and there are more than ${oneByOne}.`);
  else parts.push(...names.map((name) => ({ name })));
  const all = await Promise.all(parts.map((params) => call<Statistics>("bdev_get_iostat", params)));
  return { ...all[0], bdevs: all.flatMap((s) => s.bdevs ?? []) };
}

// between adds up the I/O between two readings of all bdevs that are in both. A bdev whose counters have decreased counts as having no I/O.
function between(old: Reading, now: Reading) {
  const total = { readOps: 0, writeOps: 0, readBytes: 0, writeBytes: 0, readTicks: 0, writeTicks: 0, each: [] as { name: string; ops: number; bytes: number; ticks: number }[] };
  for (const [name, b] of now.counts) {
    const a = old.counts.get(name);
    const since = (of: (c: Counts) => number | undefined) => (of(b) ?? 0) - (a ? of(a) ?? 0 : 0);
    const readOps = since((c) => c.num_read_ops), writeOps = since((c) => c.num_write_ops);
    if (!a || readOps < 0 || writeOps < 0) continue;
    const readBytes = since((c) => c.bytes_read), writeBytes = since((c) => c.bytes_written);
    const readTicks = since((c) => c.read_latency_ticks), writeTicks = since((c) => c.write_latency_ticks);
    total.readOps += readOps;
    total.writeOps += writeOps;
    total.readBytes += readBytes;
    total.writeBytes += writeBytes;
    total.readTicks += readTicks;
    total.writeTicks += writeTicks;
    total.each.push({ name, ops: readOps + writeOps, bytes: readBytes + writeBytes, ticks: readTicks + writeTicks });
  }
  return total;
}

export interface TargetEvent { id: number | string; time: string; type: string; object?: string; text: string }

export const events = new Cell<TargetEvent[]>([]);
// conditions are lasting events, such as a quota that is nearly used up.
export const conditions = new Cell<TargetEvent[]>([]);

const lasts = new Set(["lvstore_full", "quota_near", "certificate_expires"]);

// eventTypes lists the types of events that the proxy reports.
const eventTypes = [
  "bdev_register", "bdev_unregister", "bdev_resize", "target_down", "target_startup", "target_up", "target_restarted", "gap",
  ...[...lasts].flatMap((t) => [t, t + "_over"]),
];

export const eventState = new Cell<"open" | "waiting" | "closed">("waiting");

// eventMethod is the method that a user must be allowed to call in order to receive events.
export const eventMethod = "notify_get_notifications";

// followEvents listens to the server's events while a user is signed in.
export function followEvents() {
  return listen("/events", eventTypes, (type, data) => {
    let event: TargetEvent;
    try { event = JSON.parse(data); } catch { return; }
    const of = type.replace(/_over$/, "");
    if (type === "target_down") targetDown.value = true;
    else if (type === "target_up" || type === "target_restarted") targetDown.value = false;
    if (lasts.has(of)) {
      const others = conditions.value.filter((c) => c.type !== of || c.object !== event.object);
      conditions.value = of === type ? [...others, event] : others;
    }
    events.value = [event, ...events.value.filter((e) => e.id !== event.id)].slice(0, 100);
    if (/^(bdev_|target_|gap)/.test(type)) {
      inventoryStale.value = true;
      own = null;
    }
  }, (s) => { eventState.value = s; }, () => { inventoryStale.value = true; });
}
