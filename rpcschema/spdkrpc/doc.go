// Package spdkrpc is the typed client of SPDK's JSON-RPC: a method of [Client]
// for each RPC, generated from the schema, over a [Caller], which is either the
// target's UNIX socket ([Socket]) or the HTTPS of spdk-proxy ([HTTPS]).
//
// Requests are fitted to the target's release; errors are of a typed [Kind].
//
// It may not know what its calls are for: no CSI, no policy, no volumes.
package spdkrpc
