// Package spdkrpc is the typed client of SPDK's JSON-RPC interface. [Client] has a method for each
// RPC, generated from the schema. It sends calls through a [Caller]: over the target's UNIX socket
// ([Socket]), or over HTTPS to spdk-proxy ([HTTPS]).
//
// The client adapts requests to the target's release. Each error has a [Kind].
//
// A value that may have one of several types is a struct with a field for each type, named after
// the JSON type. Exactly one field is set: [BdevMemoryDomainDMADeviceType] has String and Integer.
// Marshaling fails if no field or several fields are set; unmarshaling fails for other types.
// Objects whose members SPDK does not define, or defines separately for each driver, are
// represented as maps of raw JSON. Examples are the result of [Client.AccelMlx5DumpStats] and the
// parameters of a [FrameworkConfigCall]. In [BdevDriverSpecific] and [BdevIOStatDriverSpecific],
// the members of drivers that the schema does not describe are also raw JSON.
//
// If a call's context has no deadline, both Callers end the call after a minute. The client
// validates parameters before it sends them, unless an option disables validation. The client is
// safe for concurrent use.
//
// # Stability
//
// Within a major version of this module, methods, types and fields are not removed. Methods,
// optional fields and constants of new SPDK releases are added. A method that SPDK removes stays in
// this package, and its comment states which releases support it; with other releases, the method
// returns an error. If SPDK renames a field, this package uses the newest name, and the client
// sends the old name to releases that support only that name.
//
// The package must not depend on the purpose of calls, such as CSI, policies or volumes.
package spdkrpc
