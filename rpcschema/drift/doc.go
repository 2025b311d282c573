// Package drift compares the schema with SPDK itself: with the methods that a live target lists,
// and with SPDK's own schema file for parameters (schema.json or schema.yaml in its source tree).
//
// Known differences are listed in known.yaml, each with its reason and the place in SPDK's sources
// that proves it; only the others must be examined. The package must not know how a target is
// reached.
package drift
