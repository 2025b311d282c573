// Package hostauth reads, from the secrets of CSI calls, the secrets that hosts and targets
// authenticate to each other with. Both controller and node use it, so that they read the same
// Kubernetes Secret in the same way.
//
// It must not know how secrets reach a target or the kernel. Its values never reveal a secret when
// they are printed, logged or encoded as JSON.
package hostauth
