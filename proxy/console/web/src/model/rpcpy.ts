// This module formats a call as a command for SPDK's scripts/rpc.py, with the words that the schema contains for each parameter
// (x-spdk-rpcpy).
import { Method, RPCPyWord, Schema, resolve } from "./document";
import { Entry, formKind, isRecord, toJSON } from "./value";
import { shellWord } from "./shell";

// A Given is a parameter of the call, or a member of one.
interface Given { schema: Schema; entry: Entry }

const mib = 1048576n;

// rpcpyCommand returns the method's name with the positional values, and each option with its value, quoted for a shell. It returns null if
// rpc.py cannot make the call, because it has no option for a parameter, requires a parameter that is not given, or adds a value of its
// own.
export function rpcpyCommand(m: Method, entry: { [name: string]: Entry }): string[] | null {
  const known = m["x-spdk-rpcpy"];
  if (!known || m.params.some((p) => p.required && entry[p.name] === undefined)) return null;
  const given = new Map<string, Given>();
  for (const p of m.params) collect(p.name, p.schema, entry[p.name], given);
  for (const [path, w] of Object.entries(known)) if (!given.has(path) && (w.needed || w.sends !== undefined || (w.position && !w.optional))) return null;
  const positions: string[] = [], options: string[] = [];
  const sent = new Set<string>(), implied = new Set<string>(); // parameters, by their members
  for (const [path, g] of given) {
    const name = path.split(".")[0];
    const w = Object.hasOwn(known, path) ? known[path] : undefined;
    if (!w || (w["not-with"] && given.has(w["not-with"]))) return null;
    if (w.set || w.clear) {
      const value = String(g.entry) === "true", flag = value ? w.set : w.clear;
      if (!flag && value !== (w.sends ?? g.schema.default)) return null;
      if (flag) options.push(flag);
      (flag ? sent : implied).add(name);
      continue;
    }
    sent.add(name);
    const text = w.list ? listText(w, g) : scalarText(w, g, given);
    if (!text || /[\p{Cc}\p{Cs}]/u.test(text)) return null; // some releases omit empty values; terminals act on control characters
    if (w.position && isValue(text)) positions[w.position - 1] = shellWord(text);
    else if (w.option && isValue(text)) options.push(`${w.option} ${shellWord(text)}`);
    else if (w.option?.startsWith("--")) options.push(shellWord(`${w.option}=${text}`));
    else return null;
  }
  for (let i = 0; i < positions.length; i++) if (positions[i] === undefined) return null;
  for (const name of implied) if (!Object.hasOwn(known, name) && !sent.has(name)) return null; // rpc.py would omit the whole object
  return [[m.name, ...positions].join(" "), ...options];
}

// collect adds a value, or the members of an object, by path.
function collect(path: string, schema: Schema, entry: Entry, given: Map<string, Given>) {
  if (entry === undefined) return;
  const s = resolve(schema);
  const members = formKind(s) === "object" && isRecord(entry) ? Object.entries(s.properties!).filter(([name]) => entry[name] !== undefined) : [];
  if (members.length === 0) given.set(path, { schema: s, entry });
  else for (const [name, member] of members) collect(`${path}.${name}`, member, (entry as { [name: string]: Entry })[name], given);
}

// isValue reports whether rpc.py reads a text as a value rather than an option. A negative number is a value.
const isValue = (text: string) => text[0] !== "-" || /^-\d+(\.\d+)?$/.test(text);

// plainText returns a text or number without quotes, and null for anything else.
function plainText(schema: Schema, entry: Entry): string | null {
  const text = toJSON(schema, entry);
  if (text === undefined) return null;
  switch (formKind(schema)) {
    case "text": case "choice": return text[0] === '"' ? JSON.parse(text) : text;
    case "number": return text[0] === '"' ? null : text; // what is not a number is written as text
  }
  return null;
}

function scalarText(w: RPCPyWord, g: Given, given: Map<string, Given>): string | null {
  const text = plainText(g.schema, g.entry);
  if (text === null || (w.nonzero && Number(text) === 0) || (w.only && !w.only.includes(Number(text)))) return null;
  if (!w.hex && !w["mib-of"]) return text;
  if (!/^\d+$/.test(text)) return null;
  if (w.hex) return BigInt(text).toString(16);
  const block = given.get(w["mib-of"]!), size = block && plainText(block.schema, block.entry);
  if (!size || !/^\d+$/.test(size)) return null;
  const bytes = BigInt(text) * BigInt(size);
  return bytes > 0n && bytes % mib === 0n ? String(bytes / mib) : null;
}

// listText formats a list as one word. It returns null if an item contains a separator of items or members.
function listText(w: RPCPyWord, g: Given): string | null {
  if (!Array.isArray(g.entry) || !g.schema.items) return null;
  const separator = w.list === "comma" ? "," : " ", reserved = w.list === "comma" ? /,/ : /\s/;
  const items = g.entry.map((e) => (w.item ? itemText(w.item, resolve(g.schema.items!), e) : plainText(g.schema.items!, e)));
  return items.some((text) => !text || reserved.test(text)) ? null : items.join(separator);
}

function itemText(names: string[], schema: Schema, entry: Entry): string | null {
  if (!isRecord(entry)) return null;
  const members = Object.keys(entry).filter((name) => entry[name] !== undefined);
  if (members.length !== names.length) return null;
  const texts = names.map((name) => schema.properties?.[name] ? plainText(schema.properties[name], entry[name]) : null);
  return texts.some((text) => !text || text.includes(":")) ? null : texts.join(":");
}
