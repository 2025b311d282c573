// Fields of a form generated from the schema.
import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { Schema, resolve } from "../model/document";
import { Entry, Problems, describe, formKind } from "../model/value";
import { Button, Rich } from "../ui/parts";
import { Suggestions, suggests } from "../ui/suggest";

interface Props {
  name: string;
  place: string;
  schema: Schema;
  required?: boolean;
  summary?: string;
  entry: Entry;
  problems: Problems;
  touched: Set<string>;
  onEntry: (e: Entry, place: string) => void;
}

// EntryField is the field for one value, with its name, meaning and problem. Objects and lists contain other fields.
export function EntryField(p: Props) {
  const s = resolve(p.schema), kind = formKind(s);
  const id = useId();
  const problem = p.touched.has(p.place) ? p.problems.get(p.place) : undefined;
  const tags = (
    <>{p.required && <span class="needed">needed</span>}{s["x-spdk-since"] && <span class="tag">since {s["x-spdk-since"]}</span>}</>
  );
  const about = (
    <p id={id + "-about"} class="hint"><Rich text={p.summary ?? s.description} />{" "}<span class="type">{describe({ schema: s, required: p.required })}</span>{problem && <span class="problem" role="alert">{problem}</span>}</p>
  );
  const head = <><span class="mono name">{p.name}</span>{tags}</>;
  if (kind === "object") return <Members {...p} schema={s} head={head} about={about} />;
  if (kind === "list") return <List {...p} schema={s} head={head} about={about} />;
  const given = { id, "aria-describedby": id + "-about", "aria-invalid": problem ? true : undefined, "aria-required": p.required };
  return (
    <div class="field entry"><div class="label"><label for={id} class="mono name">{p.name}</label>{tags}</div><Input {...p} schema={s} given={given} />{about}</div>
  );
}

function Input({ schema: s, entry, required, place, onEntry, given }: Props & { given: object }) {
  const set = (e: Entry) => onEntry(e, place);
  const text = typeof entry === "string" ? entry : "";
  const standard = s.default !== undefined ? `default: ${JSON.stringify(s.default)}` : required ? "choose" : "not given";
  switch (formKind(s)) {
    case "choice":
      return <select {...given} value={text} onChange={(e) => set(e.currentTarget.value || undefined)}><option value="">({standard})</option>{s.enum!.map((v) => <option key={String(v)}>{String(v)}</option>)}</select>;
    case "boolean":
      return <select {...given} value={entry === undefined ? "" : String(entry)} onChange={(e) => set(e.currentTarget.value === "" ? undefined : e.currentTarget.value === "true")}><option value="">({standard})</option><option>true</option><option>false</option></select>;
    case "number":
      return <div class="joined"><input {...given} inputMode="decimal" autocomplete="off" value={text} placeholder={s.default !== undefined ? String(s.default) : ""} onInput={(e) => set(e.currentTarget.value.trim() || undefined)} />{s["x-spdk-unit"] && <span class="unit">{s["x-spdk-unit"]}</span>}</div>;
    case "json":
      return <textarea {...given} class="mono" rows={3} spellcheck={false} value={text} placeholder="JSON" onInput={(e) => set(e.currentTarget.value.trim() ? e.currentTarget.value : undefined)} />;
  }
  if (suggests(s["x-spdk-resource"])) return <NameInput given={given} resource={s["x-spdk-resource"]!} text={text} onText={(t) => set(t || undefined)} />;
  return <input {...given} type={(s["x-spdk-sensitive"] ? "password" : "text") as "text"} autocomplete="off" spellcheck={false} value={text} placeholder={s.default !== undefined ? String(s.default) : ""} onInput={(e) => set(e.currentTarget.value || undefined)} />;
}

// NameInput is an input for an object's name that offers existing ones.
function NameInput({ given, resource, text, onText }: { given: object; resource: string; text: string; onText: (text: string) => void }) {
  const list = useId();
  const [used, setUsed] = useState(false);
  return (
    <><input {...given} type="text" list={list} autocomplete="off" spellcheck={false} value={text} onFocus={() => setUsed(true)} onInput={(e) => { setUsed(true); onText(e.currentTarget.value); }} />
      {used && <Suggestions id={list} resource={resource} text={text} />}</>
  );
}

interface Group extends Props { head: ComponentChildren; about: ComponentChildren }

function Members(p: Group) {
  const given = typeof p.entry === "object" && !Array.isArray(p.entry) ? p.entry : undefined;
  const needed = (name: string) => (p.schema.required?.includes(name) ? 0 : 1);
  const members = Object.entries(p.schema.properties!).sort(([a], [b]) => needed(a) - needed(b));
  const set = (name: string, e: Entry, place: string) => {
    const next = { ...(given ?? {}), [name]: e };
    if (e === undefined) delete next[name];
    p.onEntry(Object.keys(next).length === 0 && !p.required ? undefined : next, place);
  };
  return (
    <fieldset class="entry"><legend>{p.head}</legend>{p.about}
      {members.map(([name, s]) => (
        <EntryField key={name} name={name} place={`${p.place}.${name}`} schema={s} required={p.schema.required?.includes(name)} entry={given?.[name]} problems={p.problems} touched={p.touched}
          onEntry={(e, place) => set(name, e, place)} />
      ))}
    </fieldset>
  );
}

function List(p: Group) {
  const list = Array.isArray(p.entry) ? p.entry : [];
  const set = (next: Entry[], place = p.place) => p.onEntry(next.length === 0 && !p.required ? undefined : next, place);
  const empty: Entry = formKind(p.schema.items!) === "object" ? {} : "";
  return (
    <fieldset class="entry"><legend>{p.head}</legend>{p.about}
      {list.map((e, i) => (
        <div class="item" key={i}>
          <EntryField name={`${p.name} ${i + 1}`} place={`${p.place}.${i}`} schema={p.schema.items!} entry={e === "" ? undefined : e} problems={p.problems} touched={p.touched}
            onEntry={(v, place) => set(list.map((old, n) => (n === i ? v ?? empty : old)), place)} />
          <Button icon="close" kind="quiet" label={`Remove ${p.name} ${i + 1}`} onClick={() => set(list.filter((_, n) => n !== i))} />
        </div>
      ))}
      <Button icon="plus" onClick={() => set([...list, empty])}>Add</Button>
    </fieldset>
  );
}
