// Package rpcpy runs SPDK's own scripts/rpc.py through the local socket of spdk-proxy. It must work
// as at SPDK's own socket: with the same output, and with its ordinary error where the proxy
// refuses a call. The package also tests that the commands of rpc.py that the console shows make
// the calls for which they are shown, and that its commands read secrets from files where
// spdk-proxy demands it.
package rpcpy
