// Package rpcpy runs SPDK's own scripts/rpc.py through the local socket of spdk-proxy. It must work
// as at SPDK's own socket: with the same output, and with its ordinary error where the proxy refuses
// a call. And the commands that the console writes must make the calls that they stand for.
package rpcpy
