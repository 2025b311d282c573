// Package target answers the last question of the proxy: what does SPDK say? It
// keeps a few connections to the target's socket, each carrying many calls,
// learns the release behind them, and bounds how many calls are under way and
// how long each is waited for.
//
// It may not know who calls, what is allowed, or what a method means; no other
// stage of the proxy is imported here.
package target
