// Package drift compares the schema with SPDK itself: with the methods that a running target lists,
// and with SPDK's own schema of its parameters (schema.json or schema.yaml in its source tree).
//
// known.yaml lists the known differences, each with its reason and the place in SPDK's sources that
// proves it. Only differences that are not listed there need to be examined. The package must not
// depend on how a target is reached.
package drift
