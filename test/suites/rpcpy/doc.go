// Package rpcpy runs SPDK's own scripts/rpc.py through the local socket of spdk-proxy. It must work
// as at SPDK's own socket: with the same output, and with its ordinary error where the proxy
// refuses a call. The package also tests the commands that the console shows. Its commands of
// rpc.py must make the calls for which they are shown, and read secrets from files where spdk-proxy
// requires it.
package rpcpy
