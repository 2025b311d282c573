// Secrets in calls. They must not be in the arguments of a process, which all users of a host can read.
import { Method, Param, Schema, resolve } from "./document";
import { Entry } from "./value";

// mayHaveSecrets reports whether values of a schema may be, or contain, secrets. spdk-proxy call refuses these as arguments.
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

// mayUseSecrets reports whether a call may have a secret.
export const mayUseSecrets = (m: Method, entry: { [name: string]: Entry }) => m.params.some((p) => entry[p.name] !== undefined && mayHaveSecrets(p));
