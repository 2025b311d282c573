// Package schema tests the schema from outside. Calls generated from every method's parameters pass
// validator, client, proxy and target unchanged, and results generated from its result schemas
// decode without loss. SPDK's manual and running targets agree with the schema, except for
// differences listed with a reason.
//
// SPDK_SOCK=/path/to/spdk.sock adds a real target, in the startup state or after it. The tests
// create and delete objects on it, so use a new target. SPDK_SRC_TREES=v26.05=/path/to/spdk:… adds
// SPDK's manuals.
package schema
