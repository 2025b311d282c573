// Package execute carries out calls that every stage of the proxy has allowed: at SPDK, or here if
// the proxy serves the method itself. Calls that would endanger data beside other calls wait for
// each other (package quiesce), and changes of the target's configuration are saved for its next
// start (package persist).
//
// It must not depend on how a request arrived, on who is authenticated how, or on why a call is
// allowed.
package execute
