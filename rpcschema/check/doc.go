// Package check checks recorded or hand-written calls and responses against the schema. It reads
// {"method", "params", "result" | "error"} as single objects, in arrays or in lines; JSON-RPC
// requests followed by their responses, as in SPDK's manual; and SPDK's configuration files
// (save_config).
//
// The package does not depend on where its input comes from, and never calls a target.
package check
