// Package dryrun makes the proxy's decisions about calls from a configuration file alone. It
// explains why a user may or may not make a call, and compares a configuration with a table of
// expected decisions. It applies policy, schema and tenancy in the same order as the proxy.
//
// The package must not depend on the server, a target, or users' secrets.
package dryrun
