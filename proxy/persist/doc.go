// Package persist saves the target's configuration, which would otherwise be lost when spdk_tgt
// restarts. After each change, it reads the configuration through SPDK's RPCs and writes it in the
// format that spdk_tgt -c loads.
//
// A saved file is replaced with a file that contains less only if the same target process had both
// configurations, or if an administrator accepts the loss.
//
// The package must not depend on who makes a call, which calls are allowed, or how calls reach the
// target. It imports no other stage of the proxy, and calls the target through an Ask.
package persist
