// This module formats quantities: sizes in binary units, and rates per second.

const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

function digits(n: number): string {
  return (n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2)).replace(/\.0+$/, "");
}

export function bytes(n: number | undefined | null): string {
  if (n === undefined || n === null || !Number.isFinite(n)) return "–";
  let unit = 0;
  for (; Math.abs(n) >= 1024 && unit < units.length - 1; unit++) n /= 1024;
  return `${digits(n)} ${units[unit]}`;
}

export const bytesPerSecond = (n: number) => bytes(n) + "/s";

export function count(n: number | undefined | null): string {
  return n === undefined || n === null || !Number.isFinite(n) ? "–" : Math.round(n).toLocaleString("en-US");
}

// short formats large numbers with k or M, for axes.
export function short(n: number): string {
  const size = Math.abs(n);
  if (size >= 1e6) return digits(n / 1e6) + " M";
  if (size >= 1e3) return digits(n / 1e3) + " k";
  return digits(n);
}

export const perSecond = (n: number) => short(n) + "/s";

export function microseconds(us: number): string {
  if (!Number.isFinite(us)) return "–";
  if (us >= 1e6) return digits(us / 1e6) + " s";
  if (us >= 1e3) return digits(us / 1e3) + " ms";
  return digits(us) + " µs";
}

// percent shows 100 % only for exactly 1, because pages mark values above 1.
export function percent(n: number): string {
  if (!Number.isFinite(n)) return "–";
  const whole = Math.round(n * 100);
  if (whole === 100 && n !== 1) return `${(n > 1 ? Math.ceil(n * 1000) : Math.floor(n * 1000)) / 10} %`;
  return `${n > 0 && n < 0.095 ? (n * 100).toFixed(1) : count(whole)} %`;
}

export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "–";
  const d = Math.floor(seconds / 86400), h = Math.floor(seconds / 3600) % 24, m = Math.floor(seconds / 60) % 60, s = Math.floor(seconds) % 60;
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  if (m) return `${m} min ${s} s`;
  return `${s} s`;
}

// Intl objects are created when they are first used, because each would add 10 ms to the time in which the page loads.
let clock: Intl.DateTimeFormat | undefined, shortDay: Intl.DateTimeFormat | undefined, longDay: Intl.DateTimeFormat | undefined, collator: Intl.Collator | undefined;
const clockFormat = () => clock ??= new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const shortDayFormat = () => shortDay ??= new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const dayFormat = () => longDay ??= new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" });

// byName returns a function that compares names, with digits compared as numbers.
export const byName = () => (collator ??= new Intl.Collator("en", { numeric: true })).compare;

export function time(t: string | number | Date): string {
  const d = new Date(t);
  return Number.isNaN(d.getTime()) ? String(t) : clockFormat().format(d);
}

export function day(t: string | number | Date): string {
  const d = new Date(t);
  return Number.isNaN(d.getTime()) ? "" : shortDayFormat().format(d);
}

export function date(t: string | number | Date): string {
  const d = new Date(t);
  return Number.isNaN(d.getTime()) ? String(t) : dayFormat().format(d);
}

export const plural = (n: number, one: string, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

// metric returns one metric's samples from a text in Prometheus' format.
export function metric(text: string, name: string): { labels: Record<string, string>; value: number }[] {
  const found = [];
  for (const line of text.split("\n")) {
    if (!line.startsWith(name) || (line[name.length] !== "{" && line[name.length] !== " ")) continue;
    const labels: Record<string, string> = {};
    for (const [, key, value] of line.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[key] = value.replace(/\\(.)/g, "$1");
    found.push({ labels, value: Number(line.slice(line.lastIndexOf(" ") + 1)) });
  }
  return found;
}
