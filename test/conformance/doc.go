// Package conformance runs the suite of rpcschema/spdktest/conformance through
// spdk-proxy: what a target does must look the same with the proxy before it,
// but for what the schema lets it refuse first. The suite itself may not know
// the proxy, so this stands here.
package conformance
