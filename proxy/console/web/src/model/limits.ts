// This module reads the user's own limits on calls, and how much of them is in use.
import { call } from "../api";
import { Loaded, useCell, useLoad } from "../state";
import { allowed } from "./session";

export const method = "spdkgate_get_limits";

export interface Limits {
  calls_running: number; calls_running_limit: number;
  calls_waiting: number; calls_waiting_limit: number;
  calls_per_second?: number; calls_per_second_limit?: number; // absent without a limit
}

// useLimits reads the limits at an interval in ms. data is null if the user is not permitted to read the limits.
export function useLimits(every: number): Loaded<Limits | null> {
  const may = useCell(allowed);
  return useLoad(async (signal) => (may?.has(method) ? await call<Limits>(method, undefined, signal) : null), [may], every);
}
