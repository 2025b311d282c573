// This module handles the values in a form: what the user wrote, the JSON for it, and its problems. Integers remain text, because
// JavaScript's numbers cannot represent 64 bits.
import { Method, Param, Schema, resolve } from "./document";

// An Entry is what the user wrote for one schema. undefined means that the value is omitted.
export type Entry = undefined | string | boolean | Entry[] | { [name: string]: Entry };

// A Problem describes what is wrong at a place such as "namespace.nsid".
export type Problems = Map<string, string>;

export const isRecord = (e: Entry): e is { [name: string]: Entry } => typeof e === "object" && !Array.isArray(e);

// formKind returns the kind of input with which a value is entered.
export function formKind(schema: Schema): "choice" | "boolean" | "text" | "number" | "list" | "object" | "json" {
  const s = resolve(schema);
  if (s.enum) return "choice";
  switch (s.type) {
    case "boolean": return "boolean";
    case "string": return "text";
    case "integer": case "number": return "number";
    case "array": return s.items && formKind(s.items) !== "json" ? "list" : "json";
    case "object": return s.properties && Object.keys(s.properties).length > 0 ? "object" : "json";
  }
  return "json";
}

// toJSON formats an entry as JSON text. Entries with problems are formatted as well as possible.
export function toJSON(schema: Schema, entry: Entry): string | undefined {
  const s = resolve(schema);
  if (entry === undefined) return undefined;
  switch (formKind(s)) {
    case "boolean": return String(entry);
    case "number": return typeof entry === "string" && /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(entry.trim()) ? entry.trim().replace(/^(-?)0+(?=\d)/, "$1") : JSON.stringify(entry);
    case "choice": return typeof entry === "string" ? JSON.stringify(s.enum!.find((v) => String(v) === entry) ?? entry) : undefined;
    case "json": return typeof entry === "string" && entry.trim() ? entry.trim() : undefined;
    case "list": return Array.isArray(entry) ? `[${entry.map((e) => toJSON(s.items!, e) ?? "null").join(", ")}]` : undefined;
    case "object": return isRecord(entry) ? objectJSON(Object.entries(s.properties!), entry) : undefined;
  }
  return JSON.stringify(entry);
}

function objectJSON(members: [string, Schema][], entry: { [name: string]: Entry }): string {
  const parts = members.flatMap(([name, schema]) => {
    const text = toJSON(schema, entry[name]);
    return text === undefined ? [] : [`${JSON.stringify(name)}: ${text}`];
  });
  return `{${parts.join(", ")}}`;
}

// paramsJSON returns a call's parameters as JSON text, or "" if the call has none.
export function paramsJSON(m: Method, entry: { [name: string]: Entry }): string {
  const text = objectJSON(m.params.map((p) => [p.name, p.schema]), entry);
  return text === "{}" && m["x-spdk-params"] !== "object" ? "" : text;
}

const uuid = /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/i;

// check finds an entry's problems. place is the entry's place in the form.
export function check(schema: Schema, entry: Entry, place: string, problems: Problems) {
  const s = resolve(schema);
  if (entry === undefined) return;
  const say = (text: string) => problems.set(place, text);
  switch (formKind(s)) {
    case "number": return checkNumber(s, String(entry), say);
    case "text": return checkText(s, String(entry), say);
    case "choice": return s.enum!.some((v) => String(v) === entry) ? undefined : say("Choose one of the values");
    case "json": return checkJSON(String(entry), say);
    case "list": {
      const list = Array.isArray(entry) ? entry : [];
      if (s.minItems !== undefined && list.length < s.minItems) say(`Give at least ${s.minItems}`);
      if (s.maxItems !== undefined && list.length > s.maxItems) say(`Give at most ${s.maxItems}`);
      list.forEach((e, i) => {
        if (e === undefined || e === "") problems.set(`${place}.${i}`, "Give a value, or remove it");
        else check(s.items!, e, `${place}.${i}`, problems);
      });
      return;
    }
    case "object": {
      const members = isRecord(entry) ? entry : {};
      for (const name of s.required ?? []) if (members[name] === undefined && s.properties?.[name]) problems.set(`${place}.${name}`, "Needed");
      for (const [name, member] of Object.entries(s.properties!)) check(member, members[name], `${place}.${name}`, problems);
      checkGroups(s, members, place, problems);
    }
  }
}

function checkNumber(s: Schema, text: string, say: (text: string) => void) {
  const t = text.trim();
  if (s.type === "number") {
    if (!/^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(t)) say("Give a number");
    else if (s.minimum !== undefined && Number(t) < s.minimum) say(`At least ${s.minimum}`);
    else if (s.maximum !== undefined && Number(t) > s.maximum) say(`At most ${s.maximum}`);
    return;
  }
  if (!/^-?\d{1,40}$/.test(t)) return say("Give a whole number");
  const n = BigInt(t), bound = (limit: number | undefined, bits: bigint) => (limit === undefined ? bits : Math.abs(limit) > Number.MAX_SAFE_INTEGER ? bits : BigInt(limit));
  const [low, high] = range(s.format);
  const least = bound(s.minimum, low), most = bound(s.maximum, high);
  if (n < least) say(`At least ${least}`);
  else if (n > most) say(`At most ${most}`);
  else if (s.multipleOf && n % BigInt(s.multipleOf) !== 0n) say(`Give a multiple of ${s.multipleOf}`);
}

function range(format?: string): [bigint, bigint] {
  const found = /^(u?)int(\d+)$/.exec(format ?? "int64")!;
  const bits = BigInt(found?.[2] ?? 64);
  return found?.[1] ? [0n, (1n << bits) - 1n] : [-(1n << (bits - 1n)), (1n << (bits - 1n)) - 1n];
}

function checkText(s: Schema, text: string, say: (text: string) => void) {
  const length = [...text].length;
  if (s.minLength !== undefined && length < s.minLength) say(s.minLength === 1 ? "Give a value" : `At least ${s.minLength} characters`);
  else if (s.maxLength !== undefined && length > s.maxLength) say(`At most ${s.maxLength} characters`);
  else if (s.format === "uuid" && !uuid.test(text)) say("Give a UUID");
  else if (s.pattern && !matches(s.pattern, text)) say(`Does not match ${s.pattern}`);
}

function matches(pattern: string, text: string): boolean {
  try { return new RegExp(pattern, "u").test(text); } catch { return true; } // the proxy checks it
}

function checkJSON(text: string, say: (text: string) => void) {
  if (!text.trim()) return;
  try { JSON.parse(text); } catch { say("Give JSON"); }
}

// Groups lists groups of members of which exactly one, or at least one, is required.
interface Groups { "x-spdk-one-of"?: string[][]; "x-spdk-any-of"?: string[][] }

function checkGroups(of: Groups, members: { [name: string]: Entry }, place: string, problems: Problems) {
  const given = (names: string[]) => names.filter((n) => members[n] !== undefined);
  for (const names of of["x-spdk-one-of"] ?? []) if (given(names).length !== 1) problems.set(place, `Give exactly one of ${names.join(", ")}`);
  for (const names of of["x-spdk-any-of"] ?? []) if (given(names).length === 0) problems.set(place, `Give at least one of ${names.join(", ")}`);
}

// checkParams finds the problems in a whole form.
export function checkParams(m: Method, entry: { [name: string]: Entry }): Problems {
  const problems: Problems = new Map();
  for (const p of m.params) {
    if (p.required && entry[p.name] === undefined) problems.set(p.name, "Needed");
    else check(p.schema, entry[p.name], p.name, problems);
  }
  checkGroups(m, entry, "", problems);
  return problems;
}

// describe returns a description of the allowed values: type, unit, limits and default.
export function describe(p: { schema: Schema; required?: boolean }): string {
  const s = resolve(p.schema);
  const parts: string[] = [];
  const unit = s["x-spdk-unit"];
  parts.push(s.enum ? "one of a list" : s.type === "array" ? `list of ${typeName(s.items)}` : typeName(s));
  if (unit) parts.push(`in ${unit}`);
  if (s.minLength || s.maxLength) parts.push(s.minLength && s.maxLength ? `${s.minLength} to ${s.maxLength} characters` : s.maxLength ? `at most ${s.maxLength} characters` : `at least ${s.minLength} characters`);
  if (s.default !== undefined) parts.push(`default ${JSON.stringify(s.default)}`);
  if (s["x-spdk-instead"]) parts.push(`deprecated, use ${s["x-spdk-instead"]}`);
  return parts.join(", ");
}

function typeName(schema?: Schema): string {
  if (!schema) return "values";
  const s = resolve(schema);
  if (s.format && s.type === "string") return s.format === "uuid" ? "UUID" : s.format;
  return s.format ?? s.type ?? "any JSON";
}

// objectName returns the name of the object that a call affects, which the user types before a destructive call.
export function objectName(m: Method, entry: { [name: string]: Entry }): string {
  const named = (p: Param) => typeof entry[p.name] === "string" && entry[p.name] !== "";
  const found = m.params.find((p) => named(p) && resolve(p.schema)["x-spdk-resource"] !== undefined) ?? m.params.find((p) => p.required && named(p));
  return found ? String(entry[found.name]) : m.name;
}
