// This module shows how other programs make a call.
import { Method, resolve } from "./document";
import { Entry, formKind, toJSON } from "./value";
import { rpcpyCommand } from "./rpcpy";
import { mayHaveSecrets, mayUseSecrets } from "./secrets";
import { session } from "./session";
import { quote } from "./shell";

export function asJSON(m: Method, params: string): string {
  return `{"jsonrpc": "2.0", "id": 1, "method": ${JSON.stringify(m.name)}${params ? `, "params": ${params}` : ""}}`;
}

// asCurl shows a call with curl. A secret comes from standard input.
export function asCurl(m: Method, entry: { [name: string]: Entry }, params: string): string {
  const body = asJSON(m, params), data = mayUseSecrets(m, entry) ? `@- <<'END'\n${body}\nEND` : quote(body);
  return `curl --cacert tls.crt --user ${quote(session.value?.user ?? "admin")} ${location.origin}/ \\\n  -H 'Content-Type: application/json' \\\n  -d ${data}`;
}

// asCommand shows a call with spdk-proxy. A secret comes from a file.
export function asCommand(m: Method, entry: { [name: string]: Entry }): string {
  const notes: string[] = [];
  const words = m.params.flatMap((p) => {
    const text = toJSON(p.schema, entry[p.name]);
    if (text === undefined) return [];
    if (!mayHaveSecrets(p)) return [quote(`${p.name}:=${text}`)];
    const whole = !resolve(p.schema)["x-spdk-sensitive"], file = `${p.name}.${whole ? "json" : "txt"}`;
    notes.push(`# ${file} has ${whole ? `${p.name} as JSON` : `the ${p.name} in its first line`}, because every user of this host can read arguments.\n`);
    return [`${p.name}${whole ? ":" : ""}=@${file}`];
  });
  return notes.join("") + [`spdk-proxy call --url ${location.origin} --user ${quote(session.value?.user ?? "admin")} --ca tls.crt ${m.name}`, ...words].join(" \\\n  ");
}

const place = "# in SPDK's folder, on the storage server";
const socket = "/run/spdk-proxy-rpc.sock";

// asRPCPy shows a command for SPDK's rpc.py if such a command makes the same call, and otherwise a program that makes the call with
// rpc.py's client.
export function asRPCPy(m: Method, entry: { [name: string]: Entry }, params: string): string {
  const secret = mayUseSecrets(m, entry), words = secret ? null : rpcpyCommand(m, entry);
  if (words) {
    const line = `scripts/rpc.py -s ${socket} ${words.join(" ")}`;
    return `${place}\n${line.length > 120 ? `scripts/rpc.py -s ${socket} ${words.join(" \\\n  ")}` : line}`;
  }
  const why = secret ? ": every user of that host can read arguments" : ", which has other options";
  const given = params ? `, json.loads(r'''${params.replaceAll("'", "\\u0027")}''')` : "";
  return `${place}, by the client of rpc.py${why}\nPYTHONPATH=python python3 - <<'END'\nimport json\nfrom spdk.rpc.client import JSONRPCClient\n\nclient = JSONRPCClient("${socket}")\nprint(json.dumps(client.call("${m.name}"${given}), indent=2))\nEND`;
}

// asGo shows a call with the typed client if all given parameters are simple, and otherwise a call by name.
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
