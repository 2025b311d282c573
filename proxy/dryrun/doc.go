// Package dryrun makes the proxy's decisions about calls from a configuration file alone. It
// explains why a user may make a call, and compares a configuration with a table of expected
// decisions. It applies policy, schema and tenancy, in the proxy's order.
//
// It must not know the server, a target, or the secrets of users.
package dryrun
