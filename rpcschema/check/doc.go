// Package check checks recorded or hand-written calls and responses against the schema. It reads
// objects with the members method, params, and result or error. The input may be a single object,
// an array, or one object per line. It also reads JSON-RPC requests followed by their responses, as
// in SPDK's manual, and SPDK's configuration files (save_config).
//
// The package must not depend on the source of its input, and never calls a target.
package check
