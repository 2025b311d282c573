// Secrets in calls. They must not be in the arguments of a process, which all users of a host can read.
import { Method, Param, Schema, resolve } from "./document";
import { Entry, isRecord } from "./value";

// hasSecret reports whether the value of a parameter is or contains a secret.
export function hasSecret(p: Param, entry: Entry): boolean {
  const within = (schema: Schema, e: Entry): boolean => {
    const s = resolve(schema);
    if (e === undefined) return false;
    if (s["x-spdk-sensitive"]) return true;
    if (typeof s.additionalProperties === "object" && resolve(s.additionalProperties)["x-spdk-sensitive"]) return true;
    if (Array.isArray(e)) return e.some((item) => !!s.items && within(s.items, item));
    return isRecord(e) && Object.entries(s.properties ?? {}).some(([name, member]) => within(member, e[name]));
  };
  return within(p.schema, entry);
}

// usesSecret reports whether a call has a secret.
export const usesSecret = (m: Method, entry: { [name: string]: Entry }) => m.params.some((p) => hasSecret(p, entry[p.name]));
