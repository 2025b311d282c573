// An editor for a call's parameters as JSON text, which checks them against the schema while the user types.
import { useId, useState } from "preact/hooks";
import { Method } from "../model/document";
import { parseParams } from "../model/parse";
import { Entry, Problems, checkParams } from "../model/value";

interface Props {
  method: Method;
  text: string;
  onText: (text: string) => void;
  onEntries: (entries: { [name: string]: Entry }) => void;
}

// problemsOf finds the problems in parameters written as JSON.
export function problemsOf(m: Method, text: string): Problems {
  const parsed = parseParams(m, text);
  if (!parsed) return new Map([["", "This is not a JSON object, such as {\"name\": \"value\"}"]]);
  return new Map([...checkParams(m, parsed.entries), ...parsed.problems]);
}

export function ParamsEditor({ method: m, text, onText, onEntries }: Props) {
  const id = useId();
  const [rows] = useState(Math.min(24, Math.max(8, text.split("\n").length + 2)));
  const problems = problemsOf(m, text);
  const enter = (next: string) => {
    onText(next);
    const parsed = parseParams(m, next);
    if (parsed) onEntries(parsed.entries);
  };
  return (
    <div class="field entry">
      <div class="label"><label for={id} class="name">Parameters as JSON</label></div>
      <textarea id={id} class="mono params" rows={rows} spellcheck={false} autocomplete="off" value={text} aria-invalid={problems.size > 0 ? true : undefined} aria-describedby={id + "-problems"}
        placeholder={`{${m.params.filter((p) => p.required).map((p) => `"${p.name}": …`).join(", ")}}`} onInput={(e) => enter(e.currentTarget.value)} />
      <ul id={id + "-problems"} class="plain problems" aria-live="polite">
        {[...problems].map(([place, problem]) => <li key={place} class="problem">{place && <span class="mono">{place}: </span>}{problem}</li>)}
      </ul>
    </div>
  );
}
