// Package execute executes calls that every stage of the proxy has allowed. It sends calls of
// SPDK's methods to SPDK, and serves the proxy's own methods. Calls that would endanger data if
// they ran concurrently wait for each other (package quiesce). Changes to the target's
// configuration are saved for the target's next start (package persist).
//
// The package must not depend on how a request arrived, how its user was authenticated, or why a
// call is allowed.
package execute
