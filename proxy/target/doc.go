// Package target is the stage of the proxy that calls SPDK. It keeps a few connections to the
// target's socket, each for many calls, reads the release behind them, shares slots for calls among
// users, and bounds how long it waits for an answer.
//
// The package may not know what is allowed, or what a method means. It imports no other stage of
// the proxy.
package target
