// A component that shows a response as a tree, as a table, or as text.
import { useState } from "preact/hooks";
import { Code, Tabs } from "./parts";

type Value = unknown;

const isObject = (v: Value): v is Record<string, Value> => typeof v === "object" && v !== null && !Array.isArray(v);

function pretty(v: Value): string {
  return JSON.stringify(v, null, 2) ?? "";
}

export function AnswerView({ value, text }: { value: Value; text: string }) {
  const table = rowsOf(value);
  const tabs = [{ name: "Tree", show: () => <div class="tree"><Node name="" value={value} open /></div> }];
  if (table) tabs.push({ name: "Table", show: () => <Table rows={table} /> });
  tabs.push({ name: "Text", show: () => <Code text={text.length < 400000 ? pretty(value) : text} label="Answer" /> });
  return <Tabs label="Answer" tabs={tabs} />;
}

const most = 200;

function Node({ name, value, open = false }: { name: string; value: Value; open?: boolean }) {
  const [shown, show] = useState(most);
  const [isOpen, setOpen] = useState(open);
  if (!isObject(value) && !Array.isArray(value)) {
    return <div class="leaf">{name && <span class="key">{name}</span>}<span class={`value ${value === null ? "null" : typeof value}`}>{typeof value === "string" ? value || '""' : String(value)}</span></div>;
  }
  const entries = Array.isArray(value) ? value.map((v, i): [string, Value] => [labelOf(v, i), v]) : Object.entries(value);
  const about = Array.isArray(value) ? `${entries.length} ${entries.length === 1 ? "item" : "items"}` : `${entries.length} ${entries.length === 1 ? "member" : "members"}`;
  return (
    <details open={isOpen} onToggle={(e) => { if (e.target === e.currentTarget) setOpen(e.currentTarget.open); }}>
      <summary>{name ? <span class="key">{name}</span> : <span class="key">result</span>} <span class="faint">{about}</span></summary>
      {isOpen && entries.slice(0, shown).map(([k, v], i) => <Node key={i} name={k} value={v} open={entries.length === 1} />)}
      {isOpen && entries.length > shown && <button type="button" class="button" onClick={() => show(shown + 1000)}>Show more of {entries.length}</button>}
    </details>
  );
}

function labelOf(v: Value, i: number): string {
  const name = isObject(v) ? v.name ?? v.nqn ?? v.method ?? v.uuid : undefined;
  return typeof name === "string" ? `${i} ${name}` : String(i);
}

// rowsOf returns a list of objects: the value itself, or the longest list in it.
function rowsOf(value: Value): Record<string, Value>[] | null {
  const list = Array.isArray(value) ? value : isObject(value) ? Object.values(value).filter(Array.isArray).sort((a, b) => b.length - a.length)[0] : undefined;
  return Array.isArray(list) && list.length > 0 && list.every(isObject) ? (list as Record<string, Value>[]) : null;
}

function Table({ rows }: { rows: Record<string, Value>[] }) {
  const [shown, show] = useState(most);
  const columns = [...new Set(rows.slice(0, 50).flatMap((r) => Object.keys(r)))].slice(0, 14);
  const cell = (v: Value) => (v === undefined ? "" : typeof v === "object" ? JSON.stringify(v) : String(v));
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Answer as a table">
      <table>
        <thead><tr>{columns.map((c) => <th key={c} scope="col">{c}</th>)}</tr></thead>
        <tbody>{rows.slice(0, shown).map((r, i) => <tr key={i}>{columns.map((c) => <td key={c} class={typeof r[c] === "number" ? "number" : ""} title={cell(r[c])}>{cell(r[c]).slice(0, 120)}</td>)}</tr>)}</tbody>
      </table>
      {rows.length > shown && <button type="button" class="button" onClick={() => show(shown + 1000)}>Show more of {rows.length}</button>}
    </div>
  );
}
