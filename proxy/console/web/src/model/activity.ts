// The I/O of the stores' devices over the last minutes, and events. Both are collected even while other pages are shown.
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

interface Sums { at: number; rate: number; readOps: number; writeOps: number; readBytes: number; writeBytes: number; readTicks: number; writeTicks: number }

// A Sample is the activity between two readings. Latencies are in microseconds, and null without I/O.
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
let before: Sums | null = null;
let unreadable = false; // the devices do not belong to the tenant

// targetDown reports whether the target does not answer.
export const targetDown = new Cell(false);

onAnswer((method, error) => {
  if (error?.status === 502) targetDown.value = true;
  else if (!error && !method.startsWith("spdkgate_")) targetDown.value = false; // the proxy itself answers spdkgate_*
});

function forget() {
  before = null;
  unreadable = targetDown.value = false;
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
  const names = [...new Set(stores.map((s) => s.base_bdev))];
  if (names.length === 0 || sampling || unreadable) return;
  sampling = true;
  try {
    const now = sum(await statistics(names));
    const old = before;
    before = now;
    const seconds = old ? (now.at - old.at) / now.rate : 0;
    if (!old || seconds <= 0 || seconds > 30 || now.readOps < old.readOps || now.writeOps < old.writeOps) return;
    const latency = (ticks: number, ops: number) => (ops > 0 && ticks >= 0 ? (ticks / ops / now.rate) * 1e6 : null);
    samples.value = [...samples.value.slice(1 - kept), {
      at: Date.now() / 1000,
      readOps: (now.readOps - old.readOps) / seconds, writeOps: (now.writeOps - old.writeOps) / seconds,
      readBytes: (now.readBytes - old.readBytes) / seconds, writeBytes: (now.writeBytes - old.writeBytes) / seconds,
      readLatency: latency(now.readTicks - old.readTicks, now.readOps - old.readOps),
      writeLatency: latency(now.writeTicks - old.writeTicks, now.writeOps - old.writeOps),
    }];
    samplesError.value = "";
  } catch (e) {
    before = null;
    unreadable = session.value?.tenant != null && e instanceof CallError && e.code === noSuchObject;
    samplesError.value = unreadable ? `the devices below the stores do not belong to the tenant ${session.value!.tenant}.` : (e as Error).message;
  } finally {
    sampling = false;
  }
}

// statistics queries several bdevs in one call if the target's release has a parameter for that.
async function statistics(names: string[]): Promise<Statistics> {
  const method = document_.value?.methods.find((m) => m.name === "bdev_get_iostat");
  if (method?.params.some((p) => p.name === "names")) return call<Statistics>("bdev_get_iostat", { names });
  const all = await Promise.all(names.map((name) => call<Statistics>("bdev_get_iostat", { name })));
  return { ...all[0], bdevs: all.flatMap((s) => s.bdevs ?? []) };
}

function sum(s: Statistics): Sums {
  const total: Sums = { at: s.ticks, rate: s.tick_rate, readOps: 0, writeOps: 0, readBytes: 0, writeBytes: 0, readTicks: 0, writeTicks: 0 };
  for (const b of s.bdevs ?? []) {
    total.readOps += b.num_read_ops ?? 0;
    total.writeOps += b.num_write_ops ?? 0;
    total.readBytes += b.bytes_read ?? 0;
    total.writeBytes += b.bytes_written ?? 0;
    total.readTicks += b.read_latency_ticks ?? 0;
    total.writeTicks += b.write_latency_ticks ?? 0;
  }
  return total;
}

export interface TargetEvent { id: number | string; time: string; type: string; object?: string; text: string }

export const events = new Cell<TargetEvent[]>([]);
// conditions are lasting events, such as a quota that is nearly used up.
export const conditions = new Cell<TargetEvent[]>([]);

const lasts = new Set(["lvstore_full", "quota_near", "certificate_expires"]);

// eventTypes are the types that the proxy reports.
const eventTypes = [
  "bdev_register", "bdev_unregister", "bdev_resize", "target_down", "target_startup", "target_up", "target_restarted", "gap",
  ...[...lasts].flatMap((t) => [t, t + "_over"]),
];

export const eventState = new Cell<"open" | "waiting" | "closed">("waiting");

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
    if (/^(bdev_|target_|gap)/.test(type)) inventoryStale.value = true;
  }, (s) => { eventState.value = s; }, () => { inventoryStale.value = true; });
}
