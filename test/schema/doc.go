// Package schema tests the schema from outside: calls generated from every
// method's parameters go through validator, client and target and come out
// equal; results generated from its result schemas decode without loss; SPDK's
// manual and running targets agree with it, but for what is listed with a reason.
//
// SPDK_SOCK=/path/to/spdk.sock adds a real target, which is filled with objects
// and is not of much use afterwards: give it a fresh one.
// SPDK_SRC_TREES=v26.05=/path/to/spdk:… adds SPDK's manuals.
package schema
