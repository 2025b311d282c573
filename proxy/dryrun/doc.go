// Package dryrun decides calls like the proxy, from a configuration file alone: it explains why a
// user may make a call, and compares a configuration with a table of expected decisions. It applies
// policy, schema and tenancy, in the proxy's order.
//
// It may not know the server, a target, or the secrets of users.
package dryrun
