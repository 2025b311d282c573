// Package hostauth extracts, from the secrets in CSI requests, the keys that hosts and targets use
// to authenticate each other. Both the controller and the node use this package, so that both
// interpret a Kubernetes Secret in the same way.
//
// Package hostauth must not depend on how keys reach a target or the kernel. Its values never
// reveal a key when they are printed, logged or encoded as JSON.
package hostauth
