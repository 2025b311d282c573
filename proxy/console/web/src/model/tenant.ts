// This module reads the quota and the usage of the user's tenant, counted as for the proxy's decisions on calls.
import { call } from "../api";
import { Loaded, useCell, useLoad } from "../state";
import { allowed, session } from "./session";

export const method = "spdkgate_get_tenants";

export interface Amounts { bytes?: number; volumes?: number; subsystems?: number; hosts?: number; listeners?: number; keys?: number }

export interface Tenant {
  name: string;
  own: boolean;
  quota: Amounts; // an absent member means no limit
  used: Amounts;
  lvstores: string[]; bdevs: string[]; nqn_prefixes: string[]; volume_nqn_prefix?: string; iqn_prefixes: string[]; key_prefixes: string[];
  addresses: string[]; hosts: string[]; allow: string[];
}

// useTenant reads the user's tenant. data is null if the user has no tenant, or is not permitted to read it.
export function useTenant(): Loaded<Tenant | null> {
  const may = useCell(allowed), name = useCell(session)?.tenant;
  return useLoad(async (signal) => {
    if (!name || !may?.has(method)) return null;
    return (await call<Tenant[]>(method, undefined, signal)).find((t) => t.own) ?? null;
  }, [may, name], 60000);
}
