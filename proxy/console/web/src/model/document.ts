// The OpenRPC document of the methods that the user may call.
import { call, getText } from "../api";
import { Cell } from "../state";
import { allowed, can, session } from "./session";

export interface Schema {
  $ref?: string;
  title?: string;
  description?: string;
  type?: "string" | "integer" | "number" | "boolean" | "array" | "object";
  format?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  multipleOf?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  minItems?: number;
  maxItems?: number;
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  oneOf?: Schema[];
  additionalProperties?: boolean | Schema;
  "x-spdk-unit"?: string;
  "x-spdk-resource"?: string;
  "x-spdk-sensitive"?: boolean;
  "x-spdk-since"?: string;
  "x-spdk-until"?: string;
  "x-spdk-instead"?: string;
  "x-spdk-one-of"?: string[][];
  "x-spdk-any-of"?: string[][];
}

export interface Param {
  name: string;
  required?: boolean;
  summary?: string;
  schema: Schema;
}

// An RPCPyWord describes how a parameter is written for rpc.py. The Go type rpcschema.RPCPyWord documents its members.
export interface RPCPyWord {
  position?: number;
  optional?: boolean;
  option?: string;
  set?: string;
  clear?: string;
  needed?: boolean;
  hex?: boolean;
  list?: "space" | "comma";
  item?: string[];
  "mib-of"?: string;
  only?: number[];
  sends?: unknown;
  "not-with"?: string;
  nonzero?: boolean;
}

export interface Method {
  name: string;
  summary?: string;
  description?: string;
  tags?: { name: string }[];
  params: Param[];
  result: { name: string; summary?: string; schema: Schema };
  errors?: { code: number; message: string }[];
  "x-spdk-mutates"?: boolean;
  "x-spdk-reads-if"?: Record<string, unknown[]>;
  "x-spdk-since"?: string;
  "x-spdk-until"?: string;
  "x-spdk-instead"?: string;
  "x-spdk-state"?: string[];
  "x-spdk-params"?: string;
  "x-spdk-aliases"?: string[];
  "x-spdk-stalls"?: unknown;
  "x-spdk-served-by"?: string;
  "x-spdk-one-of"?: string[][];
  "x-spdk-any-of"?: string[][];
  "x-spdk-rpcpy"?: Record<string, RPCPyWord>;
}

export interface Document {
  info: { version: string };
  methods: Method[];
  components?: { schemas?: Record<string, Schema> };
}

export const document_ = new Cell<Document | null>(null);

// documentError contains the reason why there is no document.
export const documentError = new Cell("");

let loading: Promise<void> | null = null;

export function loadDocument(): Promise<void> {
  loading ??= load().finally(() => { loading = null; });
  return loading;
}

async function load() {
  try {
    const doc: Document = JSON.parse(await getText("/openrpc.json"));
    doc.methods.sort((a, b) => (a.name < b.name ? -1 : 1));
    document_.value = doc;
    documentError.value = "";
    allowed.value = new Set(doc.methods.map((m) => m.name));
  } catch (e) {
    documentError.value = (e as Error).message;
    allowed.value ??= new Set();
  }
}

// present contains the names and aliases of the methods in the target's build, or null while they are unknown.
export const present = new Cell<Set<string> | null>(null);

// loadPresent reads which methods the target has. If the read fails, loadPresent reports no error, and the page shows all methods.
export async function loadPresent(): Promise<void> {
  try {
    present.value = can("rpc_get_methods") ? new Set(await call<string[]>("rpc_get_methods", { include_aliases: true })) : null;
  } catch {
    present.value = null;
  }
}

session.follow(() => {
  if (session.value) return;
  document_.value = null;
  present.value = null;
});

// lacks reports whether the target was built without a method. names is the value of present.
export const lacks = (m: Method, names: Set<string> | null) =>
  names !== null && !m["x-spdk-served-by"] && ![m.name, ...(m["x-spdk-aliases"] ?? [])].some((n) => names.has(n));

// resolve follows a reference. Members beside $ref take precedence.
export function resolve(schema: Schema): Schema {
  for (let depth = 0; schema.$ref && depth < 8; depth++) {
    const { $ref, ...beside } = schema;
    const found = document_.value?.components?.schemas?.[$ref.replace("#/components/schemas/", "")];
    if (!found) return beside;
    schema = { ...found, ...beside };
  }
  return schema;
}

export const area = (m: Method) => m.tags?.[0]?.name ?? "other";

const destructiveWords = /(^|_)(delete|remove|destroy|clear|kill|erase|format|unregister|detach|shutdown|reset|stop|unload)(_|$)/;

// destructive reports whether a call can lose data or disconnect hosts. Before such a call, the console asks the user to type the object's
// name.
export const destructive = (name: string) => destructiveWords.test(name);
