// This module detects secrets in calls. Secrets must not be in a process's arguments, which all users on a host can read.
import { Method, Param, Schema, resolve } from "./document";
import { Entry } from "./value";

// mayHaveSecrets reports whether a schema's values may be or contain secrets, which `spdk-proxy call` refuses as arguments.
export function mayHaveSecrets(p: Param): boolean {
  const seen = new Set<Schema>(); // schemas may contain themselves
  const within = (schema: Schema): boolean => {
    const s = resolve(schema);
    if (seen.has(s)) return false;
    seen.add(s);
    if (schema["x-spdk-sensitive"] || s["x-spdk-sensitive"]) return true;
    const inner = [...Object.values(s.properties ?? {}), ...(s.oneOf ?? [])];
    if (s.items) inner.push(s.items);
    if (typeof s.additionalProperties === "object") inner.push(s.additionalProperties);
    return inner.some(within);
  };
  return within(p.schema);
}

// mayUseSecrets reports whether a call may contain a secret.
export const mayUseSecrets = (m: Method, entry: { [name: string]: Entry }) => m.params.some((p) => entry[p.name] !== undefined && mayHaveSecrets(p));
