// Package check checks recorded or written calls and answers against the schema: JSON objects,
// arrays or lines of {"method", "params", "result" | "error"}, JSON-RPC requests followed by their
// replies as in SPDK's manual, and SPDK's configuration files (save_config).
//
// It must not know where its input comes from, nor reach a target.
package check
