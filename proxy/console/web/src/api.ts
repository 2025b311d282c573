// Calls to the proxy: JSON-RPC, the session, and server-sent events.

export interface Session {
  user: string;
  roles: string[];
  tenant: string | null;
  method: string;
  csrf: string;
  administrator: boolean;
  release: string | null;
  version: string;
  idle_seconds: number;
  expires: string;
  grafana?: string; // template of a URL, see model/grafana.ts
}

export interface Ways {
  password: boolean;
  token: boolean;
  certificate: boolean;
  oidc: boolean;
}

export type ErrorKind = "denied" | "invalid" | "busy" | "unreachable" | "spdk" | "missing" | "network";

// CallError describes a failed call, with the error from the proxy or SPDK.
export class CallError extends Error {
  constructor(message: string, readonly kind: ErrorKind, readonly code = 0, readonly status = 0, readonly text = "", readonly method = "") {
    super(message);
  }
}

const kinds: Record<number, ErrorKind> = { 400: "invalid", 403: "denied", 404: "missing", 413: "invalid", 429: "busy", 502: "unreachable", 503: "busy", 504: "unreachable" };

let csrf = "";
let ended: () => void = () => {};

export function setSession(session: Session | null) {
  csrf = session?.csrf ?? "";
}

// onSessionEnd sets a function that is called when the server has ended the session.
export function onSessionEnd(f: () => void) {
  ended = f;
}

let answered: (method: string, error?: CallError) => void = () => {};

// onAnswer sets a function that is called when a call ends, with a result or an error.
export function onAnswer(f: (method: string, error?: CallError) => void) {
  answered = f;
}

let lastInput = Date.now();
for (const type of ["pointerdown", "keydown", "wheel", "touchstart"]) addEventListener(type, () => { lastInput = Date.now(); }, { passive: true, capture: true });

// idleFor returns how long the user has not used the page, in ms.
export const idleFor = () => Date.now() - lastInput;

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (csrf) headers.set("X-CSRF-Token", csrf);
  if (idleFor() > 10000) headers.set("X-Background", "1"); // this call does not count as use of the session
  try {
    return await fetch(path, { credentials: "same-origin", cache: "no-store", redirect: "error", ...init, headers });
  } catch (e) {
    if (e instanceof DOMException && e.name === "AbortError") throw e;
    throw new CallError("the proxy did not answer: check the connection, then retry", "network");
  }
}

// textOf reads a response. The text is incomplete if the connection is lost.
async function textOf(response: Response): Promise<string> {
  try {
    return await response.text();
  } catch (e) {
    if (e instanceof DOMException && e.name === "AbortError") throw e;
    throw new CallError("the connection was lost before the response was complete: check the state, then retry", "network");
  }
}

// parsed parses the JSON in a response.
function parsed(text: string) {
  try { return JSON.parse(text); } catch { throw new CallError("the response is not JSON: is there another server between the browser and the proxy?", "network"); }
}

// failure returns the error in a response without a result.
function failure(status: number, text: string, method = ""): CallError {
  let message = text.trim().slice(0, 500), code = 0;
  try {
    const body = JSON.parse(text);
    message = body.error?.message ?? body.message ?? message;
    code = body.error?.code ?? 0;
  } catch { /* plain text */ }
  return new CallError(message || `status ${status}`, kinds[status] ?? "spdk", code, status, text, method);
}

let id = 0;

export interface Answer {
  text: string; // the text of the whole response
  result: unknown;
  milliseconds: number;
}

// callText makes a call whose parameters are JSON text, or "" for none.
export async function callText(method: string, params: string, signal?: AbortSignal): Promise<Answer> {
  const body = `{"jsonrpc":"2.0","id":${++id},"method":${JSON.stringify(method)}${params ? `,"params":${params}` : ""}}`;
  const start = performance.now();
  const response = await request("/", { method: "POST", body, headers: { "Content-Type": "application/json" }, signal });
  const text = await textOf(response);
  if (response.status === 401) ended();
  const error = response.status !== 200 ? failure(response.status, text, method) : undefined;
  const answer = error ? {} : parsed(text);
  const refused = error ?? (answer.error && new CallError(answer.error.message, "spdk", answer.error.code, 200, text, method));
  answered(method, refused);
  if (refused) throw refused;
  return { text, result: answer.result, milliseconds: performance.now() - start };
}

export async function call<T>(method: string, params?: object, signal?: AbortSignal): Promise<T> {
  return (await callText(method, params ? JSON.stringify(params) : "", signal)).result as T;
}

async function jsonOf<T>(response: Response): Promise<T> {
  const text = await textOf(response);
  if (!response.ok) {
    if (response.status === 401) ended();
    throw failure(response.status, text);
  }
  return parsed(text);
}

export const getJSON = async <T>(path: string, signal?: AbortSignal) => jsonOf<T>(await request(path, { signal }));

export const postJSON = async <T>(path: string, body: unknown) =>
  jsonOf<T>(await request(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }));

export async function getText(path: string, signal?: AbortSignal): Promise<string> {
  const response = await request(path, { signal });
  const text = await textOf(response);
  if (!response.ok) throw failure(response.status, text);
  return text;
}

export async function currentSession(): Promise<{ session?: Session; ways?: Ways }> {
  const response = await request("/console/session");
  const body = parsed(await textOf(response));
  return response.ok ? { session: body } : { ways: body.ways };
}

export async function signIn(credentials: object): Promise<Session> {
  const response = await request("/console/session", {
    method: "POST", body: JSON.stringify(credentials), headers: { "Content-Type": "application/json" },
  });
  const text = await textOf(response);
  if (response.ok) return parsed(text);
  const error = failure(response.status, text);
  const wait = response.headers.get("Retry-After");
  throw response.status === 429 && wait ? new CallError(`${error.message} (retry in ${wait} s)`, "busy") : error;
}

export async function signOut(everywhere: boolean) {
  await request("/console/session" + (everywhere ? "?everywhere=1" : ""), { method: "DELETE" });
}

const closeAfter = 30000; // ms

// listen follows a stream of server-sent events. The browser reconnects when the connection is lost; state receives the connection's state.
// A page that has been hidden for half a minute closes its connection, because browsers allow only six connections for all tabs; reopened
// is called when the connection is opened again. A page that the user leaves also closes its connection, because the browser keeps the page
// for the Back button.
export function listen(path: string, types: string[], event: (type: string, data: string, id: string) => void, state: (s: "open" | "waiting" | "closed") => void, reopened = () => {}) {
  let source: EventSource | null = null, timer = 0;
  const open = () => {
    const s = source = new EventSource(path);
    s.onopen = () => state("open");
    s.onerror = () => state(s.readyState === EventSource.CLOSED ? "closed" : "waiting");
    for (const type of types) s.addEventListener(type, (e) => event(type, (e as MessageEvent).data, (e as MessageEvent).lastEventId));
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const seen = () => {
    clearTimeout(timer);
    if (document.hidden) timer = window.setTimeout(close, closeAfter);
    else if (!source) {
      open();
      reopened();
    }
  };
  document.addEventListener("visibilitychange", seen);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", seen);
  open();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    window.removeEventListener("pagehide", close);
    window.removeEventListener("pageshow", seen);
    clearTimeout(timer);
    close();
  };
}
