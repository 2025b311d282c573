// The I/O of volumes, which the proxy samples once a minute.
import { call } from "../api";
import { useLoad } from "../state";
import { can } from "./session";

export interface IOSample {
  time: number; // seconds since 1970
  read_ios_per_sec: number; write_ios_per_sec: number;
  read_bytes_per_sec: number; write_bytes_per_sec: number;
  read_latency_us: number; write_latency_us: number;
  latency_p50_us?: number; latency_p99_us?: number; // of all operations, if the histogram is enabled
}

export interface BdevIO { name: string; alias?: string; histogram: "on" | "off" | "partial" | "unknown"; samples: IOSample[] }

// A Rate is a volume's sample for the last minute, with the state of the volume's latency histogram.
export interface Rate extends IOSample { histogram: BdevIO["histogram"] }

const method = "spdkgate_get_io_history";

// useRates returns the last minute's sample for each volume with I/O. It returns null if the user is not permitted to read samples, or if
// the proxy keeps none.
export function useRates(): Map<string, Rate> | null {
  const may = can(method);
  const { data } = useLoad(async (signal) => (may ? new Map((await call<BdevIO[]>(method, undefined, signal)).map((b): [string, Rate] => [b.name, { ...b.samples[0], histogram: b.histogram }])) : null), [may], 30000);
  return data ?? null;
}

// useHistory returns a volume's samples for the last hour, or null if there are none.
export const useHistory = (name: string) => useLoad(async (signal) => (await call<BdevIO[]>(method, { name }, signal))[0] ?? null, [name], 30000);

export const mayReadHistory = () => can(method);

export const operations = (s?: IOSample) => (s ? s.read_ios_per_sec + s.write_ios_per_sec : 0);

export const throughput = (s?: IOSample) => (s ? s.read_bytes_per_sec + s.write_bytes_per_sec : 0);

export const measuring = "bdev_enable_histogram";

// measureParams returns the parameters that enable or disable a volume's latency histogram. They are JSON text, because JavaScript's
// numbers cannot represent max_nsec. With other limits, the histogram does not count I/O on channels that are opened later.
export const measureParams = (name: string, on: boolean, bounded: boolean) =>
  `{"name":${JSON.stringify(name)},"enable":${on}${on && bounded ? `,"min_nsec":0,"max_nsec":18446744073709551615` : ""}}`;

// withoutPercentiles returns the reason why there are no percentiles, or "".
export function withoutPercentiles(b: Pick<BdevIO, "histogram">, measured: boolean): string {
  switch (b.histogram) {
    case "off": return "The latency histogram is off.";
    case "partial": return "The latency histogram leaves out I/O, because it was not switched on for all latencies.";
    case "unknown": return "The latency histogram was not read: the proxy reads those of the 64 busiest volumes and disks.";
  }
  return measured ? "" : "The proxy needs two readings of the latency histogram, a minute apart.";
}
