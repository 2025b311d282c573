// Package persist saves the target's configuration, which a restarted spdk_tgt would otherwise have
// lost. After each change it reads the configuration through SPDK's RPCs, and writes it in the form
// that spdk_tgt -c loads.
//
// Its first rule: a saved file is never replaced by one that contains less. Exceptions are that the
// same process of the target had both configurations, or that an administrator accepts the loss.
//
// The package must not depend on who calls, what is allowed, or how a call is transported. It
// imports no other stage of the proxy, and calls the target through an Ask.
package persist
