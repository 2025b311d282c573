// Package check checks recorded or hand-written calls and responses against the schema. It reads
// JSON objects, arrays or lines of {"method", "params", "result" | "error"}, JSON-RPC requests
// followed by their responses as in SPDK's manual, and SPDK's configuration files (save_config).
//
// It does not depend on where its input comes from, and never calls a target.
package check
