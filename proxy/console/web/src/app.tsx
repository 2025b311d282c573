// The frame of the console: navigation, the user's menu, the theme, and one page.
import type { FunctionComponent } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import * as format from "./format";
import { eventMethod, eventState, followEvents, sampleRegularly, targetDown } from "./model/activity";
import { loadDocument } from "./model/document";
import * as account from "./model/session";
import { SignIn } from "./pages/signin";
import { Overview } from "./pages/overview";
import { Volumes } from "./pages/volumes";
import { Access } from "./pages/access";
import { Audit } from "./pages/audit";
import { Explorer } from "./pages/explorer";
import { Exports } from "./pages/exports";
import { Storage } from "./pages/storage";
import { announce, link, remember, remembered, route, useCell } from "./state";
import { Announcements, Button, Dialog, Empty, Icon } from "./ui/parts";
import { look } from "./ui/plot";

interface Page { id: string; name: string; title?: string; show: FunctionComponent; administrators?: boolean }

const pages: Page[] = [
  { id: "overview", name: "Overview", show: Overview },
  { id: "volumes", name: "Volumes", show: Volumes },
  { id: "exports", name: "Exports", show: Exports },
  { id: "storage", name: "Storage", show: Storage },
  { id: "explorer", name: "Explorer", title: "RPC explorer", show: Explorer },
  { id: "access", name: "Access", show: Access },
  { id: "audit", name: "Audit", show: Audit, administrators: true },
];

const unknown: Page = { id: "unknown", name: "Page not found", show: Unknown };

function Unknown() {
  const here = useCell(route);
  const reserved = pages.some((p) => p.id === here.page);
  return <Empty title={reserved ? "Only administrators may see this page" : `The console has no page ${here.page}`}><a href={link("overview")}>Go to the overview</a></Empty>;
}

const themes = ["", "light", "dark"];

export function applyTheme() {
  const theme = remembered("theme");
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  look.value++;
}

function ThemeButton() {
  const [theme, set] = useState(remembered("theme"));
  const next = themes[(themes.indexOf(theme) + 1) % themes.length];
  const name = (t: string) => t || "the system's";
  const turn = () => {
    remember("theme", next);
    set(next);
    applyTheme();
    announce(`Colours: ${name(next)}`);
  };
  return <Button icon="theme" kind="quiet" label={`Colours: ${name(theme)}. Change to ${name(next)}`} onClick={turn} />;
}

export function App() {
  const session = useCell(account.session), ways = useCell(account.ways), follows = useCell(account.allowed)?.has(eventMethod);
  const [failed, setFailed] = useState("");
  const start = () => account.start().then(() => setFailed(""), (e) => setFailed(e.message));
  useLayoutEffect(() => { void start(); }, []);
  useEffect(() => {
    if (!session) return;
    const stops = [account.watchIdle(), sampleRegularly()];
    const timer = setTimeout(() => void loadDocument(), 150);
    return () => { clearTimeout(timer); stops.forEach((stop) => stop()); };
  }, [session]);
  useEffect(() => (session && follows ? followEvents() : undefined), [session, follows]);
  return (
    <>
      {session ? <Frame /> : ways ? <SignIn key={ways.password} ways={ways} theme={<ThemeButton />} /> :
        <main class="splash">{failed ? <><p>The console cannot reach the proxy: {failed}</p><Button icon="refresh" onClick={() => void start()}>Retry</Button></> : <p>Loading…</p>}</main>}
      <Announcements />
    </>
  );
}

function Frame() {
  const session = useCell(account.session)!, here = useCell(route);
  const shown = pages.filter((p) => !p.administrators || session.administrator);
  const page = shown.find((p) => p.id === here.page) ?? unknown;
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  useEffect(() => {
    document.title = `${page.name} – SPDKGate`;
    if (first.current) { first.current = false; return; }
    announce(page.name);
    if (!main.current?.contains(document.activeElement)) main.current?.focus({ preventScroll: true });
  }, [page.id]);
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); main.current?.focus(); }}>Skip to the page</a>
      <nav aria-label="Pages">
        <p class="brand"><BrandMark /><span>SPDKGate</span></p>
        <ul>
          {shown.map((p) => (
            <li key={p.id}><a href={link(p.id)} aria-current={p === page ? "page" : undefined}><Icon name={p.id} size={20} /><span>{p.name}</span></a></li>
          ))}
        </ul>
        <p class="version">{session.release ? `SPDK ${session.release}` : "Target unreachable"}<br />Proxy {session.version}</p>
      </nav>
      <div class="side">
        <header class="top">
          <h1>{page.title ?? page.name}</h1>
          <span class="grow" />
          <EventLight />
          <ThemeButton />
          <UserMenu />
        </header>
        <main id="main" ref={main} tabIndex={-1}><page.show /></main>
      </div>
    </div>
  );
}

export function BrandMark() {
  return <svg width="26" height="26" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" fill="#1f5fbf" /><path d="M7 9.5h18M7 16h18M7 22.5h18" stroke="#fff" stroke-width="3.4" stroke-linecap="round" /><circle cx="21.5" cy="9.5" r="2.6" fill="#1f5fbf" stroke="#fff" stroke-width="1.8" /><circle cx="11.5" cy="16" r="2.6" fill="#1f5fbf" stroke="#fff" stroke-width="1.8" /><circle cx="18" cy="22.5" r="2.6" fill="#1f5fbf" stroke="#fff" stroke-width="1.8" /></svg>;
}

function EventLight() {
  const state = useCell(eventState), down = useCell(targetDown), may = useCell(account.allowed);
  if (down) return <span class="light down" role="status" title="The target does not answer">Target down</span>;
  if (state === "closed" || may && !may.has(eventMethod)) return null;
  return <span class={`light ${state}`} title={state === "open" ? "Changes on the target appear by themselves" : "The stream of events is being connected"}>{state === "open" ? "Live" : "Connecting"}</span>;
}

function UserMenu() {
  const session = useCell(account.session)!;
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="button quiet who" aria-haspopup="dialog" onClick={() => setOpen(true)}><Icon name="user" /><span>{session.user}</span></button>
      {open && (
        <Dialog title="Your session" onClose={() => setOpen(false)}>
          <dl class="facts">
            <dt>User</dt><dd>{session.user}</dd>
            <dt>Roles</dt><dd>{session.roles.join(", ") || "none"}</dd>
            {session.tenant && <><dt>Tenant</dt><dd>{session.tenant}</dd></>}
            <dt>Signed in by</dt><dd>{session.method}</dd>
            <dt>Ends</dt><dd>{format.date(session.expires)}, or after {Math.round(session.idle_seconds / 60)} min without input</dd>
          </dl>
          <footer><Button onClick={() => void account.leave(true)}>Sign out everywhere</Button><Button kind="primary" onClick={() => void account.leave(false)}>Sign out</Button></footer>
        </Dialog>
      )}
    </>
  );
}
