// Small components for all pages.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { CallError } from "../api";
import { document_ } from "../model/document";
import { announce, dismiss, notes, notify, said, useCell } from "../state";
import { percent } from "../format";

const paths: Record<string, string> = {
  overview: "M3 12h4l3-8 4 16 3-8h4",
  volumes: "M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3zM4 6v6c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12v6c0 1.7 3.6 3 8 3s8-1.3 8-3v-6",
  exports: "M6 3v8a4 4 0 0 0 4 4h8M14 11l4 4-4 4M6 15v6",
  storage: "M4 5h16v6H4zM4 13h16v6H4zM7 8h.5M7 16h.5M11 8h6M11 16h6",
  explorer: "M8 6l-5 6 5 6M16 6l5 6-5 6M14 4l-4 16",
  access: "M12 3l8 3v6c0 5-3.4 8-8 9-4.6-1-8-4-8-9V6zM9 12l2 2 4-4",
  audit: "M5 3h10l4 4v14H5zM9 11h6M9 15h6M9 7h2",
  theme: "M12 3a9 9 0 1 0 0 18V3zM12 3a9 9 0 0 1 0 18",
  user: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c0-4 3.6-6 8-6s8 2 8 6",
  search: "M10.5 18a7.5 7.5 0 1 0 0-15 7.5 7.5 0 0 0 0 15zM16 16l5 5",
  refresh: "M20 11a8 8 0 1 0-2 6M20 4v7h-7",
  close: "M6 6l12 12M18 6L6 18",
  plus: "M12 5v14M5 12h14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  warning: "M12 4l9 16H3zM12 10v4M12 17v.5",
  good: "M5 12.5l4.5 4.5L19 7.5",
  down: "M6 9l6 6 6-6",
  right: "M9 6l6 6-6 6",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 7.5V8",
  pause: "M8 5v14M16 5v14",
  play: "M8 5l11 7-11 7z",
};

export function Icon({ name, size = 18 }: { name: string; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8"
      stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d={paths[name]} /></svg>
  );
}

interface ButtonProps {
  children?: ComponentChildren;
  icon?: string;
  label?: string; // for a button without text
  kind?: "primary" | "danger" | "quiet";
  disabled?: boolean;
  title?: string;
  type?: "button" | "submit";
  pressed?: boolean;
  onClick?: (e: MouseEvent) => void;
}

export function Button({ children, icon, label, kind, disabled, title, type = "button", pressed, onClick }: ButtonProps) {
  return (
    <button type={type} class={`button ${kind ?? ""} ${children ? "" : "round"}`} disabled={disabled} title={title ?? label}
      aria-label={label} aria-pressed={pressed} onClick={onClick}>
      {icon && <Icon name={icon} />}{children}
    </button>
  );
}

// Dialog is a dialog that is modal while it is in the page. Escape and a click outside of the dialog call onClose, which can remove it from
// the page. Browsers always close a dialog at the second Escape; if the dialog is still in the page, it is opened again.
export function Dialog({ title, onClose, children, wide }: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    box.current?.showModal();
    box.current?.querySelector<HTMLElement>("input, select, textarea")?.focus();
    return () => before?.isConnected ? before.focus() : undefined;
  }, []);
  return (
    <dialog ref={box} class={wide ? "wide" : ""} aria-labelledby={id} onCancel={(e) => { e.preventDefault(); onClose(); }}
      onClose={() => { onClose(); requestAnimationFrame(() => { if (box.current?.isConnected && !box.current.open) box.current.showModal(); }); }}
      onMouseDown={(e) => { if (e.target === box.current) onClose(); }}>
      <div class="dialog">
        <header><h2 id={id}>{title}</h2><Button icon="close" label="Close" kind="quiet" onClick={onClose} /></header>
        {children}
      </div>
    </dialog>
  );
}

// Alert is a message on the page.
export function Alert({ level, children, action }: { level: "bad" | "warn" | "good" | "info"; children: ComponentChildren; action?: ComponentChildren }) {
  const icon = level === "good" ? "good" : level === "info" ? "info" : "warning";
  return <div class={`alert ${level}`} role={level === "bad" ? "alert" : undefined}><Icon name={icon} /><div class="grow">{children}</div>{action}</div>;
}

export function ErrorNote({ error, retry }: { error: Error; retry?: () => void }) {
  return <Alert level="bad" action={retry && <Button icon="refresh" onClick={retry}>Retry</Button>}><Failure error={error} /></Alert>;
}

// meanings contains explanations of SPDK's error codes, for methods whose schema does not explain them.
const meanings: Record<number, string> = {
  [-1]: "The target is not in the state that this call needs.",
  [-2]: "There is no such object.",
  [-12]: "The target has no memory left for this.",
  [-16]: "The object is in use.",
  [-17]: "An object with this name exists already.",
  [-19]: "There is no such object.",
  [-28]: "There is no space left.",
  [-95]: "The target does not support this.",
};

// meaningOf explains a code that SPDK returned. Codes up to -1000 are JSON-RPC's and the proxy's: their messages explain themselves.
function meaningOf({ kind, code, method }: CallError): string | undefined {
  if (kind !== "spdk" || code >= 0 || code <= -1000) return undefined;
  const said = document_.value?.methods.find((m) => m.name === method)?.errors?.find((e) => e.code === code)?.message;
  return said ? `${said}.` : meanings[code];
}

// Failure shows why a call failed: an explanation, and the message from SPDK or the proxy.
export function Failure({ error }: { error: Error }) {
  if (!(error instanceof CallError)) return <>{error.message}</>;
  const meaning = meaningOf(error);
  return <>{error.kind === "denied" ? "Refused: " : ""}{meaning ? <><Rich text={meaning} /> <span class="faint">SPDK: {error.message}, code {error.code}</span></> : error.message}</>;
}

// Ends shows a name. If the name does not fit, its middle is omitted, because names such as NQNs differ at their ends.
export function Ends({ text, full = text }: { text: string; full?: string }) {
  if (text.length <= 12) return <span class="clip" title={full}>{text}</span>;
  const head = text.length - Math.min(14, text.length >> 1);
  return <span class="ends" title={full} onCopy={copyOneLine}><span>{text.slice(0, head)}</span><span><span>{text.slice(head)}</span></span></span>;
}

// copyOneLine copies a part of a name without the line breaks that browsers add between its two halves.
function copyOneLine(e: ClipboardEvent) {
  const selected = getSelection(), name = e.currentTarget as Node;
  if (!selected || !name.contains(selected.anchorNode) || !name.contains(selected.focusNode)) return;
  e.clipboardData?.setData("text/plain", String(selected).replaceAll("\n", ""));
  e.preventDefault();
}

// MethodName shows the name of a method, which may be wrapped only after an underscore.
export const MethodName = ({ name }: { name: string }) => <>{name.split(/(?<=_)/).flatMap((part, i) => (i ? [<wbr key={i} />, part] : [part]))}</>;

// CommandLine shows a command. Without it, the browser would break "-s" after the hyphen.
export const CommandLine = ({ text }: { text: string }) => <>{text.split(/(?= -)/).map((part, i) => { const [, flag, rest] = /^( -\w+)?(.*)$/s.exec(part)!; return flag ? <>{" "}<span key={i} class="flag">{flag.slice(1)}</span>{rest}</> : rest; })}</>;

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><p class="strong">{title}</p>{children && <p>{children}</p>}</div>;
}

export function Field({ label, hint, error, children }: { label: string; hint?: ComponentChildren; error?: string; children: (props: { id: string; "aria-describedby"?: string; "aria-invalid"?: boolean }) => ComponentChildren }) {
  const id = useId();
  const about = hint || error ? id + "-about" : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, "aria-describedby": about, "aria-invalid": error ? true : undefined })}
      {about && <p id={about} class={error ? "hint bad" : "hint"}>{error || hint}</p>}
    </div>
  );
}

// Rich shows a text, with the words in `backquotes` as code.
export function Rich({ text = "" }: { text?: string }) {
  return <>{text.split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>;
}

// CapacityBar shows how much of an lvstore is used. A thin line shows how much is provisioned to its volumes.
export function CapacityBar({ label, used, provisioned, total }: { label: string; used: number; provisioned?: number; total: number }) {
  const share = total > 0 ? used / total : 0;
  const given = provisioned === undefined || total <= 0 ? undefined : provisioned / total;
  const scale = Math.min(2, Math.max(1, given ?? 0));
  const level = share >= 0.95 ? "bad" : share >= 0.85 ? "warn" : "";
  return (
    <div class="capacity" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)}
      aria-valuetext={`${percent(share)} used` + (given === undefined ? "" : `, ${percent(given)} provisioned`)}>
      <div class="track" style={{ width: `${100 / scale}%` }}><div class={`fill ${level} ${used > 0 ? "some" : ""}`} style={{ width: `${share * 100}%` }} /></div>
      <div class={`provisioned ${(given ?? 0) > 1 ? "over" : ""}`} style={{ width: `${Math.min(1, (given ?? 0) / scale) * 100}%` }} />
    </div>
  );
}

export function ShareBar({ share, label }: { share: number; label: string }) {
  return (
    <span class="share" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)}>
      <span style={{ width: `${Math.min(1, share) * 100}%` }} />
    </span>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      notify("Copied");
    } catch {
      notify("The browser does not permit copying here: select the text instead.", true);
    }
  };
  return <Button icon="copy" kind="quiet" label={label} onClick={copy} />;
}

// Tabs shows one of several panels. Arrow keys move between the tabs.
export function Tabs({ label, tabs }: { label: string; tabs: { name: string; show: () => ComponentChildren }[] }) {
  const [chosen, choose] = useState(0);
  const at = Math.min(chosen, tabs.length - 1);
  const id = useId();
  const key = (e: KeyboardEvent) => {
    const step = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? tabs.length - 1 : 0;
    if (!step) return;
    e.preventDefault();
    const next = (at + step) % tabs.length;
    choose(next);
    ((e.currentTarget as HTMLElement).children[next] as HTMLElement).focus();
  };
  return (
    <div class="tabs">
      <div role="tablist" aria-label={label} onKeyDown={key}>
        {tabs.map((t, i) => (
          <button type="button" key={t.name} role="tab" id={`${id}-${i}`} aria-selected={i === at} aria-controls={id} tabIndex={i === at ? 0 : -1}
            onClick={() => choose(i)}>{t.name}</button>
        ))}
      </div>
      <div role="tabpanel" id={id} aria-labelledby={`${id}-${at}`} tabIndex={0}>{tabs[at].show()}</div>
    </div>
  );
}

export function Code({ text, label }: { text: string; label: string }) {
  return <div class="code"><Copy text={text} label={`Copy ${label}`} /><pre tabIndex={0} role="region" aria-label={label}>{text}</pre></div>;
}

// Announcements shows the live region for screen readers, and the notes at the edge of the window.
export function Announcements() {
  const list = useCell(notes);
  return (
    <>
      <div class="unseen" role="status" aria-live="polite">{useCell(said)}</div>
      <aside class="notes" aria-label="Messages">
        {list.map((n) => <div key={n.id} class={n.bad ? "note bad" : "note"}><span class="grow">{n.text}</span><Button icon="close" kind="quiet" label="Dismiss" onClick={() => dismiss(n.id)} /></div>)}
      </aside>
    </>
  );
}

export function Search({ value, label, onInput }: { value: string; label: string; onInput: (v: string) => void }) {
  return (
    <label class="search"><span class="unseen">{label}</span><Icon name="search" />
      <input type="search" value={value} placeholder={label} spellcheck={false} autocomplete="off"
        onInput={(e) => onInput(e.currentTarget.value)} onKeyDown={(e) => { if (e.key === "Escape" && value) { e.stopPropagation(); onInput(""); announce("Search cleared"); } }} />
    </label>
  );
}
