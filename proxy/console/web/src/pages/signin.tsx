// The sign-in page.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Ways, signIn } from "../api";
import { BrandMark } from "../app";
import { begin, farewell } from "../model/session";
import { useCell } from "../state";
import { Alert, Button, Field } from "../ui/parts";

export function SignIn({ ways, theme }: { ways: Ways; theme: ComponentChildren }) {
  const [byToken, setByToken] = useState(!ways.password);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const parting = useCell(farewell);
  useEffect(() => { document.title = "Sign in – SPDKGate"; }, []);
  useEffect(() => { form.current?.querySelector("input")?.focus(); }, [byToken]);

  const attempt = async (credentials: object) => {
    setBusy(true);
    setError("");
    try {
      begin(await signIn(credentials));
    } catch (e) {
      setError((e as Error).message);
      const secret = form.current?.querySelector<HTMLInputElement>("input[type=password]");
      if (secret) { secret.value = ""; secret.focus(); }
    }
    setBusy(false);
  };
  const submit = (e: Event) => {
    e.preventDefault();
    const given = new FormData(form.current!);
    void attempt(byToken ? { token: String(given.get("token")).trim() } : { user: given.get("user"), password: given.get("password") });
  };
  return (
    <main class="signin">
      <div class="card">
        <header><BrandMark /><h1>SPDKGate</h1><span class="grow" />{theme}</header>
        <p class="faint">Sign in to the storage server <b>{location.hostname}</b>.</p>
        {parting && !error && <Alert level="info">{parting}</Alert>}
        {error && <Alert level="bad">{error}</Alert>}
        <form ref={form} onSubmit={submit}>
          {byToken ?
            <Field label="Token">{(f) => <input {...f} name="token" type="password" autocomplete="off" required />}</Field> :
            <>
              <Field label="User">{(f) => <input {...f} name="user" autocomplete="username" autocapitalize="none" spellcheck={false} required />}</Field>
              <Field label="Password">{(f) => <input {...f} name="password" type="password" autocomplete="current-password" required />}</Field>
            </>}
          <Button kind="primary" type="submit" disabled={busy}>{busy ? "Checking…" : "Sign in"}</Button>
        </form>
        {(ways.oidc || ways.certificate || (ways.token && ways.password)) && (
          <div class="other">
            {ways.oidc && <a class="button" href="/console/oidc/start">Sign in with your organization</a>}
            {ways.certificate && <Button disabled={busy} onClick={() => void attempt({})}>Use the browser's certificate</Button>}
            {ways.token && ways.password && <Button onClick={() => { setByToken(!byToken); setError(""); }}>{byToken ? "Use a password" : "Use a token"}</Button>}
          </div>
        )}
      </div>
    </main>
  );
}
