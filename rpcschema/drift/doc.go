// Package drift compares the schema with SPDK itself: with the methods that a live target lists,
// and with the schema file (schema.json or schema.yaml) that SPDK's source tree keeps of its
// parameters.
//
// Known differences are listed in known.yaml, each with its reason and the place in SPDK's sources
// that shows it; only the others must be examined. It may not know how a target is reached.
package drift
