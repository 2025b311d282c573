// Package rpcpy runs SPDK's own scripts/rpc.py through spdk-proxy's local socket. rpc.py must work
// in the same way as on SPDK's own socket, with the same output, and must report its ordinary error
// if the proxy refuses a call. The package also tests the commands that the console shows. The
// commands must make exactly the calls that they are shown for, and must read secrets from files if
// spdk-proxy requires this.
package rpcpy
