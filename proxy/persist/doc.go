// Package persist saves the target's configuration, which would otherwise be lost when spdk_tgt
// restarts. After each change, it reads the configuration through SPDK's RPCs, and writes it in the
// format that spdk_tgt -c loads.
//
// Its first rule is that a saved file is never replaced with one that contains less. There are two
// exceptions: the same process of the target had both configurations, or an administrator accepts
// the loss.
//
// The package must not depend on who makes a call, what is allowed, or how a call is transported.
// It imports no other stage of the proxy, and calls the target through an Ask.
package persist
