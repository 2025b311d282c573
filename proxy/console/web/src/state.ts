// State shared by several components, and polling that stops while the page is hidden.
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

// A Cell holds a value. Components that use it are rendered again when the value changes.
export class Cell<T> {
  private followers = new Set<() => void>();
  constructor(private current: T) {}
  get value() { return this.current; }
  set value(v: T) {
    if (v === this.current) return;
    this.current = v;
    for (const f of [...this.followers]) f();
  }
  follow(f: () => void) {
    this.followers.add(f);
    return () => { this.followers.delete(f); };
  }
}

export function useCell<T>(cell: Cell<T>): T {
  const [, redraw] = useState({});
  const shown = cell.value;
  useLayoutEffect(() => { // instead of useEffect, which waits for a frame
    const stop = cell.follow(() => redraw({}));
    if (cell.value !== shown) redraw({});
    return stop;
  }, [cell]);
  return shown;
}

export interface Loaded<T> {
  data?: T;
  error?: Error;
  loading: boolean;
  refresh: () => void;
}

// useLoad runs load when the component appears and when a dependency changes; with every, also at this interval (in ms) while the page is
// visible. After an error, the previous data stays.
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, dependencies: unknown[], every = 0): Loaded<T> {
  const [state, set] = useState<{ data?: T; error?: Error; loading: boolean }>({ loading: true });
  const again = useRef<() => void>(() => {});
  useEffect(() => {
    let timer = 0, busy = false;
    const aborter = new AbortController();
    const run = async () => {
      if (busy) return;
      busy = true;
      clearTimeout(timer);
      try {
        const data = await load(aborter.signal);
        if (!aborter.signal.aborted) set({ data, loading: false });
      } catch (e) {
        if (!aborter.signal.aborted) set((old) => ({ data: old.data, error: e as Error, loading: false }));
      }
      busy = false;
      if (every && !aborter.signal.aborted && !document.hidden) timer = window.setTimeout(run, every);
    };
    const seen = () => { if (every && !document.hidden) void run(); };
    again.current = () => void run();
    document.addEventListener("visibilitychange", seen);
    void run();
    return () => {
      aborter.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, dependencies);
  const refresh = useCallback(() => again.current(), []);
  return { ...state, refresh };
}

// A Route is the part of the address after #/: a page, and values such as a search.
export interface Route {
  page: string;
  values: Record<string, string>;
}

let parsed = ""; // the part of the address that the route shows

function parse(): Route {
  parsed = location.hash;
  const [page, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: page || "overview", values: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

export const route = new Cell<Route>(parse());
addEventListener("hashchange", () => { route.value = parse(); });

export function link(page: string, values: Record<string, string | undefined> = {}): string {
  const given = Object.entries(values).filter((e): e is [string, string] => !!e[1]);
  const query = new URLSearchParams(given).toString();
  return `#/${page}${query ? "?" + query : ""}`;
}

// change replaces values in the route without adding an entry to the browser's history.
export function change(values: Record<string, string | undefined>) {
  if (location.hash !== parsed) return; // the user has gone to another address, which is not shown yet
  const now = route.value;
  const address = link(now.page, { ...now.values, ...values });
  if (address === location.hash) return;
  history.replaceState(null, "", address);
  route.value = parse();
}

export function go(page: string, values: Record<string, string | undefined> = {}) {
  location.hash = link(page, values);
}

// said contains the text that screen readers announce.
export const said = new Cell("");

export function announce(text: string) {
  said.value = "";
  setTimeout(() => { said.value = text; }, 50);
}

// notes contains messages that appear briefly at the edge of the window.
export interface Note { id: number; text: string; bad: boolean }
export const notes = new Cell<Note[]>([]);
let lastNote = 0;

// notify shows a note. If stays is set, the note remains until the user dismisses it.
export function notify(text: string, bad = false, stays = false) {
  const note = { id: ++lastNote, text, bad };
  notes.value = [...notes.value.slice(-3), note];
  announce(text);
  if (!stays) setTimeout(() => dismiss(note.id), bad ? 15000 : 6000);
}

export function dismiss(id: number) {
  notes.value = notes.value.filter((n) => n.id !== id);
}

// useSearch returns a page's search, which the address stores: the typed text, a function that changes it, and the text to search for,
// which is updated a moment after the last key.
export function useSearch(): [text: string, setText: (text: string) => void, query: string] {
  const given = useCell(route).values.q ?? "";
  const [text, setText] = useState(given), [query, setQuery] = useState(given);
  const known = useRef(given); // the search in the address after this component's last change
  useLayoutEffect(() => {
    if (given === known.current) return;
    known.current = given; // the user has opened another address
    setText(given);
    setQuery(given);
  });
  useEffect(() => {
    if (text === known.current) return;
    const timer = setTimeout(() => {
      known.current = text;
      setQuery(text);
      change({ q: text });
    }, 120);
    return () => clearTimeout(timer);
  }, [text]);
  return [text, setText, query];
}

// remembered returns a value in localStorage, which may be unavailable.
export function remembered(key: string): string {
  try { return localStorage.getItem("spdkgate." + key) ?? ""; } catch { return ""; }
}

export function remember(key: string, value: string) {
  try { localStorage.setItem("spdkgate." + key, value); } catch { /* private mode */ }
}
