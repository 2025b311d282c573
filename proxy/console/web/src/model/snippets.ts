// A call as other programs make it.
import { Method, resolve } from "./document";
import { Entry, formKind, toJSON } from "./value";
import { session } from "./session";

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

export function asJSON(m: Method, params: string): string {
  return `{"jsonrpc": "2.0", "id": 1, "method": ${JSON.stringify(m.name)}${params ? `, "params": ${params}` : ""}}`;
}

export function asCurl(m: Method, params: string): string {
  return `curl --cacert tls.crt --user ${quote(session.value?.user ?? "admin")} ${location.origin}/ \\\n  -H 'Content-Type: application/json' \\\n  -d ${quote(asJSON(m, params))}`;
}

// asCommand is a call by spdk-proxy.
export function asCommand(m: Method, entry: { [name: string]: Entry }): string {
  const words = m.params.flatMap((p) => {
    const text = toJSON(p.schema, entry[p.name]);
    return text === undefined ? [] : [quote(`${p.name}:=${text}`)];
  });
  return [`spdk-proxy call --url ${location.origin} --user ${quote(session.value?.user ?? "admin")} --ca tls.crt ${m.name}`, ...words].join(" \\\n  ");
}

// asPython is a call by the client of SPDK's rpc.py, whose options differ between commands.
export function asPython(m: Method, params: string): string {
  const python = params.replace(/"(?:[^"\\]|\\.)*"|\b(true|false|null)\b/g, (text, word) => (word ? { true: "True", false: "False", null: "None" }[word as string]! : text));
  return `# in SPDK's folder, on the storage server: PYTHONPATH=python python3\nfrom spdk.rpc.client import JSONRPCClient\n\nclient = JSONRPCClient("/run/spdk-proxy-rpc.sock")\nprint(client.call("${m.name}"${python ? `, ${python}` : ""}))`;
}

// asGo is a call by the typed client if all given parameters are simple, and otherwise by name.
export function asGo(m: Method, entry: { [name: string]: Entry }, params: string): string {
  return typedGo(m, entry) ?? `var result json.RawMessage\nerr := caller.Call(ctx, "${m.name}", ${params ? `json.RawMessage(\`${params}\`)` : "nil"}, &result)`;
}

function typedGo(m: Method, entry: { [name: string]: Entry }): string | null {
  const plain = m.name.replaceAll("_", "");
  let name = "";
  const fields: string[] = [];
  for (const p of m.params) {
    const title = p.schema.title ?? "";
    const own = title.toLowerCase() === plain + p.name.replaceAll("_", "").toLowerCase();
    if (own) name = title.slice(0, plain.length);
    if (entry[p.name] === undefined) continue;
    const kind = formKind(p.schema), s = resolve(p.schema), text = toJSON(p.schema, entry[p.name]);
    if (!own || text === undefined || (kind !== "text" && kind !== "number" && kind !== "boolean")) return null;
    const typed = kind === "number" ? `${s.format ?? "float64"}(${text})` : text;
    fields.push(`${title.slice(plain.length)}: ${p.required ? text : `new(${typed})`}`);
  }
  if (!name) return null;
  const confirms = m.result.schema.const === true;
  return `${confirms ? "err" : "result, err"} := spdk.${name}(ctx, spdkrpc.${name}Params{${fields.length ? `\n\t${fields.join(",\n\t")},\n` : ""}})`;
}
