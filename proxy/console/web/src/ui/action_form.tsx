// A dialog that makes one call.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { CallError, callText } from "../api";
import { readInventory } from "../model/storage";
import { notify } from "../state";
import { Alert, Button, Dialog, Failure, Field } from "./parts";

interface FormProps {
  title: string;
  action: string;
  danger?: boolean;
  caution?: boolean; // the effect is shown as a warning
  ready: boolean;
  method: string;
  params: object | string; // a string is JSON text, for numbers that JavaScript cannot represent
  done: string;
  effect: ComponentChildren;
  children?: ComponentChildren;
  onClose: () => void;
  onDone?: () => void;
}

// ActionForm explains what a call will do, shows it, and makes it when the form is submitted.
export function ActionForm({ title, action, danger, caution, ready, method, params, done, effect, children, onClose, onDone }: FormProps) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<CallError | null>(null);
  const text = typeof params === "string" ? params : JSON.stringify(params);
  const submit = async (e: Event) => {
    e.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await callText(method, text);
      notify(done);
      onClose();
      onDone?.();
      void readInventory();
    } catch (e) {
      setError(e as CallError);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(e) => void submit(e)}>
        {children}
        <Alert level={danger || caution ? "warn" : "info"}>{effect}</Alert>
        <details class="call"><summary>The call</summary><pre tabIndex={0}>{typeof params === "string" ? `{"method": ${JSON.stringify(method)}, "params": ${params}}` : JSON.stringify({ method, params }, null, 2)}</pre></details>
        {error && <Alert level="bad"><Failure error={error} /></Alert>}
        <footer><Button onClick={onClose}>Cancel</Button><Button type="submit" kind={danger ? "danger" : "primary"} disabled={!ready || busy}>{busy ? "Working…" : action}</Button></footer>
      </form>
    </Dialog>
  );
}

// Confirm asks the user to type an object's name before the object is destroyed.
export function Confirm({ name, typed, onInput }: { name: string; typed: string; onInput: (typed: string) => void }) {
  return <Field label={`To confirm, type ${name}`}>{(f) => <input {...f} value={typed} autocomplete="off" spellcheck={false} onInput={(e) => onInput(e.currentTarget.value)} />}</Field>;
}

// NameInput is a field for the name of a new object.
export function NameInput({ label = "Name", name, error, onInput }: { label?: string; name: string; error?: string; onInput: (name: string) => void }) {
  return <Field label={label} error={error}>{(f) => <input {...f} value={name} required autocomplete="off" spellcheck={false} onInput={(e) => onInput(e.currentTarget.value)} />}</Field>;
}
