// This module converts parameters written as JSON to entries in the form.
import { Method, Schema, resolve } from "./document";
import { Entry, Problems, formKind } from "./value";

// A Tagged is a JSON value in which numbers keep their digits: strings begin with s, and numbers with n.
type Tagged = null | boolean | string | Tagged[] | { [name: string]: Tagged };

const tokens = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;

function tagged(text: string): Tagged {
  JSON.parse(text); // throws if it is not JSON
  return JSON.parse(text.replace(tokens, (token) => (token[0] === '"' ? `"s${token.slice(1)}` : `"n${token}"`)));
}

function plain(v: Tagged): string {
  if (typeof v === "string") return v[0] === "n" ? v.slice(1) : JSON.stringify(v.slice(1));
  if (Array.isArray(v)) return `[${v.map(plain).join(", ")}]`;
  if (v === null || typeof v === "boolean") return String(v);
  return `{${members(v).map(([name, m]) => `${JSON.stringify(name)}: ${plain(m)}`).join(", ")}}`;
}

const members = (v: { [name: string]: Tagged }) => Object.entries(v).map(([name, m]): [string, Tagged] => [name.slice(1), m]);

function entryOf(schema: Schema, v: Tagged, place: string, problems: Problems): Entry {
  const s = resolve(schema);
  const wrong = (text: string) => { problems.set(place, text); return undefined; };
  const text = typeof v === "string" && v[0] === "s" ? v.slice(1) : undefined;
  const number = typeof v === "string" && v[0] === "n" ? v.slice(1) : undefined;
  switch (formKind(s)) {
    case "boolean": return typeof v === "boolean" ? v : wrong("Give true or false");
    case "number": return number ?? wrong("Give a number, without quotes");
    case "text": return text ?? wrong("Give a text, in quotes");
    case "choice": return typeof v === "boolean" ? String(v) : text ?? number ?? wrong(`Give one of ${s.enum!.map((e) => JSON.stringify(e)).join(", ")}`);
    case "list": return Array.isArray(v) ? v.map((e, i) => entryOf(s.items!, e, `${place}.${i}`, problems)) : wrong("Give a list");
    case "object": return v !== null && typeof v === "object" && !Array.isArray(v) ? entriesOf(s.properties!, v, place + ".", problems) : wrong("Give an object");
  }
  return plain(v);
}

function entriesOf(schemas: Record<string, Schema>, v: { [name: string]: Tagged }, place: string, problems: Problems): { [name: string]: Entry } {
  const entries: { [name: string]: Entry } = {};
  for (const [name, m] of members(v)) {
    if (!Object.hasOwn(schemas, name)) problems.set(place + name, `There is nothing of this name here. Known: ${Object.keys(schemas).join(", ") || "none"}`);
    else entries[name] = entryOf(schemas[name], m, place + name, problems);
  }
  return entries;
}

// indented formats JSON text with one line for each member.
export function indented(text: string): string {
  let indent = "";
  return (text || "{}").replace(/"(?:[^"\\]|\\.)*"|\{\}|\[\]|[{}[\],]\s*|:\s*/g, (token) => {
    switch (token[0]) {
      case "{": case "[":
        if (token.length === 2 && /[}\]]/.test(token[1])) return token;
        return token[0] + "\n" + (indent += "  ");
      case "}": case "]": return "\n" + (indent = indent.slice(2)) + token[0];
      case ",": return ",\n" + indent;
      case ":": return ": ";
    }
    return token;
  });
}

// parseParams converts the parameters of a call to entries, and lists the values that the form cannot represent. It returns null if the
// text is not a JSON object.
export function parseParams(m: Method, text: string): { entries: { [name: string]: Entry }; problems: Problems } | null {
  const problems: Problems = new Map();
  if (!text.trim()) return { entries: {}, problems };
  try {
    const v = tagged(text);
    if (v === null || typeof v !== "object" || Array.isArray(v)) return null;
    return { entries: entriesOf(Object.fromEntries(m.params.map((p) => [p.name, p.schema])), v, "", problems), problems };
  } catch {
    return null;
  }
}
