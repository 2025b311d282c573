// Package hostauth reads the secrets with which hosts and targets authenticate to each other, from
// the secrets of CSI calls. Controller and node use it, so that both read the same Kubernetes
// Secret in the same way.
//
// It may not know how secrets reach a target or the kernel. Its values never show a secret when
// they are printed, logged or written as JSON.
package hostauth
