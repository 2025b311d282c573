// Package persist saves the target's configuration: what a restarted spdk_tgt
// would otherwise have lost is read through SPDK's RPCs after each change, and
// written in the form that spdk_tgt -c loads.
//
// What it holds to, before all: the one file that knows of transports, subsystems,
// hosts and listeners is never replaced by one that knows less of them, unless
// the same process of the target was seen with both, or somebody said so.
//
// It may not know who calls, what is allowed, or how a call travels; no other
// stage of the proxy is imported here. It asks the target through an Ask.
package persist
