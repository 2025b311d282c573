// Package drift compares the schema with SPDK itself: with the methods that a
// live target lists, and with the schema file (schema.json or schema.yaml) that
// SPDK's source tree keeps of its parameters.
//
// Differences that are known, each with its reason, stand in known.yaml; only
// the others are worth a look. It may not know how a target is reached.
package drift
