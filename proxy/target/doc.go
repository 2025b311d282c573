// Package target is the stage of the proxy that calls SPDK. It keeps a few connections to the
// target's socket, each of which carries many calls, and reads the target's release. It divides
// slots for calls among users, and limits how long it waits for a response.
//
// The package must not depend on which calls are allowed, or on what a method means. It imports no
// other stage of the proxy.
package target
