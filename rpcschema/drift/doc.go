// Package drift compares the schema with SPDK itself. It compares it with the methods that a live
// target lists, and with SPDK's own schema file of parameters (schema.json or schema.yaml in its
// source tree).
//
// Known differences are listed in known.yaml, each with its reason and the place in SPDK's sources
// that shows it; only the others must be examined. It must not know how a target is reached.
package drift
