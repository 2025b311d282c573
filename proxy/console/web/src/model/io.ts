// The I/O of volumes, which the proxy samples once a minute.
import { call } from "../api";
import { useLoad } from "../state";
import { can } from "./session";

export interface IOSample {
  time: number; // seconds since 1970
  read_ios_per_sec: number; write_ios_per_sec: number;
  read_bytes_per_sec: number; write_bytes_per_sec: number;
  read_latency_us: number; write_latency_us: number;
}

interface BdevIO { name: string; alias?: string; samples: IOSample[] }

const method = "spdkgate_get_io_history";

// useRates returns the last minute's sample of each volume with I/O, or null if the user may not read it or the proxy does not keep it.
export function useRates(): Map<string, IOSample> | null {
  const may = can(method);
  const { data } = useLoad(async (signal) => (may ? new Map((await call<BdevIO[]>(method, undefined, signal)).map((b) => [b.name, b.samples[0]])) : null), [may], 30000);
  return data ?? null;
}

// useHistory returns a volume's samples of the last hour.
export const useHistory = (name: string) => useLoad(async (signal) => (await call<BdevIO[]>(method, { name }, signal))[0]?.samples ?? [], [name], 30000);

export const mayReadHistory = () => can(method);

export const operations = (s?: IOSample) => (s ? s.read_ios_per_sec + s.write_ios_per_sec : 0);

export const throughput = (s?: IOSample) => (s ? s.read_bytes_per_sec + s.write_bytes_per_sec : 0);
