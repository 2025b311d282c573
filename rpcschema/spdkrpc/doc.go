// Package spdkrpc is the typed client of SPDK's JSON-RPC interface. [Client] has a method for each
// RPC, generated from the schema. It sends calls through a [Caller]: over the target's UNIX socket
// ([Socket]), or over HTTPS to spdk-proxy ([HTTPS]).
//
// The client adapts requests to the target's release. Each error has a [Kind].
//
// A value that may have one of several types is a struct with a field for each type, named after
// the JSON type. Exactly one field is set: [BdevMemoryDomainDMADeviceType] has String and Integer.
// Marshaling fails if no field or several fields are set; unmarshaling fails for other types.
// Objects whose members SPDK does not define, or defines for each driver, are maps of raw JSON.
// Examples are the result of [Client.AccelMlx5DumpStats] and the parameters of a
// [FrameworkConfigCall]. In [BdevDriverSpecific] and [BdevIOStatDriverSpecific], the members of
// drivers that the schema does not describe are also raw JSON.
//
// If a call's context has no deadline, both callers end the call after a minute. The client
// validates parameters before it sends them, unless an option disables validation. The client is
// safe for concurrent use.
//
// # Stability
//
// Within a major version of this module, methods, types and fields are not removed. Additions of
// new SPDK releases are added here: methods, optional fields, constants. A method that SPDK removes
// stays in this package and lists the releases that support it; calling it on another release is an
// error. If SPDK renames a field, the field has the newest name here. Releases that support only
// the old name are sent that name.
//
// The package does not depend on the purpose of its calls: CSI, policies and volumes are unknown to
// it.
package spdkrpc
