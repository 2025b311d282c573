// Package spdkrpc is the typed client of SPDK's JSON-RPC. [Client] has a method for each RPC,
// generated from the schema. It calls through a [Caller]: the target's UNIX socket ([Socket]), or
// spdk-proxy over HTTPS ([HTTPS]).
//
// The client adapts requests to the target's release. Each error has a [Kind].
//
// A value that may have one of several types is a struct with a field for each of them, named after
// its JSON type. Exactly one field is set: [BdevMemoryDomainDMADeviceType] has String and Integer.
// Writing such a value fails when none or several fields are set, and reading fails for other
// types. Objects whose members SPDK does not define, or defines for each driver, are maps of raw
// JSON. Examples are the result of [Client.AccelMlx5DumpStats] and the parameters of a
// [FrameworkConfigCall]. In [BdevDriverSpecific] and [BdevIOStatDriverSpecific], the members of
// drivers that the schema does not describe are also raw JSON.
//
// If a call's context has no deadline, both callers end the call after a minute. The client
// validates parameters before it sends them, unless an option disables that. It may be used by
// several goroutines at once.
//
// # Stability
//
// Within a major version of this module, methods, types and fields stay. What a new SPDK release
// adds is added here: methods, optional fields, constants. A method that SPDK removes stays here
// and is marked with the releases that have it; calling it on another release is an error. A field
// that SPDK renames has the newest name here, and is sent under the older one to releases that know
// only that.
//
// The package must not know the purpose of its calls: it knows nothing of CSI, policies or volumes.
package spdkrpc
