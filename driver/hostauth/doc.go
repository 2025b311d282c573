// Package hostauth reads the secrets with which hosts and targets authenticate to each other, from
// the secrets of CSI calls. Both the controller and the node use it, so that both read a Kubernetes
// Secret in the same way.
//
// Package hostauth must not depend on how secrets reach a target or the kernel. Its values never
// reveal a secret when they are printed, logged or encoded as JSON.
package hostauth
