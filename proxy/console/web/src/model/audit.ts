// This module selects the lines of the audit log that are shown, and creates the files to download.
import type { Method } from "./document";

export interface Line {
  n: number;
  time: string;
  user?: string;
  auth?: string;
  source?: string;
  method?: string;
  decision?: string;
  rule?: string;
  status?: number;
  error?: string;
  resources?: string[] | string;
  latency_ms?: number;
  request_id?: string;
  [key: string]: unknown;
}

export interface Filter {
  query: string; // words; user:, method: and object: search a single member
  only?: string; // "changes" or "refused"
  decision?: string;
  from?: string; // local time, as in an input of the type datetime-local
  to?: string;
  reads?: string; // "shown": include the console's own reads
}

export const objects = (l: Line) => (Array.isArray(l.resources) ? l.resources.join(", ") : l.resources ?? "");
export const failed = (l: Line) => !!l.error || (typeof l.status === "number" && l.status >= 400);
const refused = (l: Line) => (l.decision !== "allow" && l.decision !== "learn") || failed(l);

const canceled = 499; // the user left the page before the response

// outcome is the decision, or "failed" for a permitted call that failed.
export const outcome = (l: Line) => (l.decision === "allow" && failed(l) ? "failed" : l.decision ?? "");

const members = new Map<string, (l: Line) => string>([["user", (l) => l.user ?? ""], ["method", (l) => l.method ?? ""], ["object", objects]]);
const everything = (l: Line) => [l.user, l.method, objects(l), l.decision, l.source, l.rule, l.error, l.request_id].join(" ");

// changes reports whether a call changes the target. With certain parameters, some methods only read.
function changes(l: Line, m: Method | undefined): boolean {
  const readsIf = m?.["x-spdk-reads-if"], params = l.params ?? {};
  if (!readsIf || typeof params !== "object") return !!m?.["x-spdk-mutates"];
  return !Object.entries(readsIf).every(([name, values]) => !(name in params) || values.includes((params as Record<string, unknown>)[name]));
}

function word(text: string): (l: Line) => boolean {
  const colon = text.indexOf(":"), member = members.get(text.slice(0, Math.max(0, colon)));
  const wanted = member ? text.slice(colon + 1) : text;
  return (l) => (member ?? everything)(l).toLowerCase().includes(wanted);
}

// shows returns a function that reports whether a line passes the filter.
export function shows(f: Filter, methods: Map<string, Method>): (l: Line) => boolean {
  const words = f.query.toLowerCase().split(/\s+/).filter(Boolean).map(word);
  const from = f.from ? Date.parse(f.from) : -Infinity;
  const to = f.to ? Date.parse(f.to) + 60_000 : Infinity; // the whole minute
  return (l) => {
    const at = Date.parse(l.time), changing = changes(l, methods.get(l.method ?? ""));
    const own = l.auth === "session" && !changing && (!refused(l) || l.status === canceled);
    return (f.reads === "shown" || !own) &&
      (f.only !== "refused" || refused(l)) && (f.only !== "changes" || changing) &&
      (!f.decision || outcome(l) === f.decision) && !(at < from || at >= to) && words.every((w) => w(l));
  };
}

// known reports whether a line was received before, because a reopened stream begins with old lines. An id has the form PROCESS-NUMBER.
export function known(id: string, last: string): boolean {
  const [process, number] = id.split("-"), [lastProcess, lastNumber] = last.split("-");
  return process === lastProcess && Number(number) <= Number(lastNumber);
}

export const jsonLines = (lines: Line[]) => lines.map(({ n: _, ...l }) => JSON.stringify(l) + "\n").join("");

const header = ["time", "user", "auth", "credential", "source", "method", "resources", "decision", "rule", "status", "code", "error", "latency_ms", "tenant", "request_id", "params"];

// csv returns the lines as a CSV table. Clients choose some of the text, so no cell may begin like a formula.
export function csv(lines: Line[]): string {
  const cell = (value: unknown) => {
    const text = value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
    return `"${(typeof value !== "number" && /^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`;
  };
  return [header.join(","), ...lines.map((l) => header.map((h) => cell(h === "resources" ? objects(l) : l[h])).join(","))].join("\r\n") + "\r\n";
}
