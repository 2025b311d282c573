// This module reads the target's figures that the proxy collects for Prometheus. Reading them causes no calls to the target.
import { CallError, getText } from "../api";
import { metric } from "../format";
import { session } from "./session";

export interface Figures {
  provisioned: Map<string, number>; // by lvstore, in bytes
  volumes: number; // including clones
  snapshots: number;
  started: number; // seconds since 1970, NaN if unknown
  restarts: number; // restarts that the proxy has seen
}

const names = ["spdk_lvstore_committed_bytes", "spdk_lvstore_volumes", "spdk_lvstore_snapshots", "spdk_start_time_seconds", "spdk_restarts_total"];

// readFigures returns the target's figures, or null if the user is not permitted to read them.
export async function readFigures(signal: AbortSignal): Promise<Figures | null> {
  if (session.value?.tenant) return null; // tenants are refused, and each refusal would be an entry in the audit log
  let text: string;
  try {
    text = await getText("/metrics/target", signal);
  } catch (e) {
    if (e instanceof CallError && (e.kind === "denied" || e.kind === "missing")) return null;
    throw e;
  }
  const wanted = text.split("\n").filter((line) => names.some((n) => line.startsWith(n))).join("\n");
  const sum = (name: string) => metric(wanted, name).reduce((total, m) => total + m.value, 0);
  return {
    provisioned: new Map(metric(wanted, names[0]).map((m) => [m.labels.lvstore, m.value])),
    volumes: sum(names[1]), snapshots: sum(names[2]), started: metric(wanted, names[3])[0]?.value ?? NaN, restarts: sum(names[4]),
  };
}
