// Package schema tests the schema from outside: calls generated from every
// method's parameters go through validator, client, proxy and target and come
// out equal; results generated from its result schemas decode without loss;
// SPDK's manual and running targets agree with it, but for what is listed with a
// reason.
//
// SPDK_SOCK=/path/to/spdk.sock adds a real target, in the startup state or after
// it. It is filled with objects and then plundered: give it a fresh one.
// SPDK_SRC_TREES=v26.05=/path/to/spdk:… adds SPDK's manuals.
package schema
