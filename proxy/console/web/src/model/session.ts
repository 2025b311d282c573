// This module holds the user's session, and which methods the user may call.
import * as api from "../api";
import { Cell } from "../state";

export const session = new Cell<api.Session | null>(null);
export const ways = new Cell<api.Ways | null>(null);
export const farewell = new Cell("");

// allowed contains the names of the methods that the user may call, or null while they are unknown.
export const allowed = new Cell<Set<string> | null>(null);

// unseen returns a text about an empty list. A user with a tenant does not see everything, so an empty list means only that the user sees
// nothing.
export const unseen = (empty: string, seen: string) => (session.value?.tenant ? seen : empty);

export function begin(s: api.Session) {
  api.setSession(s);
  farewell.value = "";
  session.value = s;
}

export function end(why: string) {
  if (!session.value) return;
  api.setSession(null);
  farewell.value = why;
  allowed.value = null;
  session.value = null;
  void api.currentSession().then(({ ways: w }) => { if (w) ways.value = w; }, () => {}); // a page that was loaded during a session has not read them yet
}

api.onSessionEnd(() => end("Your session has ended. Sign in again."));

export async function start() {
  const { session: s, ways: w } = await api.currentSession();
  ways.value = w ?? ways.value ?? { password: true, token: true, certificate: false, oidc: false };
  if (s) begin(s);
}

export async function leave(everywhere: boolean) {
  try { await api.signOut(everywhere); } finally {
    end(everywhere ? "You are signed out everywhere." : "You are signed out.");
  }
}

export const can = (method: string) => allowed.value?.has(method) ?? false;

// watchIdle ends the session after the given time without input, as the server would.
export function watchIdle() {
  const timer = setInterval(() => {
    const limit = session.value?.idle_seconds;
    if (limit && api.idleFor() > limit * 1000) void leave(false).then(() => { farewell.value = "You were signed out because the console was not used."; });
  }, 10000);
  return () => clearInterval(timer);
}
