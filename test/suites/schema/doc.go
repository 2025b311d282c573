// Package schema tests the RPC schema from outside package rpcschema. Calls that are generated from
// every method's parameters pass through the validator, the client, the proxy and the target
// unchanged, and results that are generated from its result schemas can be decoded without loss.
// SPDK's manual and running targets agree with the schema, except for differences listed with a
// reason.
//
// SPDK_SOCK=/path/to/spdk.sock adds a real target, in the startup state or after it. The tests
// create and delete objects on the target, so use a new one. SPDK_SRC_TREES=v26.05=/path/to/spdk:…
// adds SPDK's manuals.
package schema
