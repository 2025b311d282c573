// Package dryrun decides calls as the proxy would, on a configuration file alone: it
// explains why a user may make a call, and holds a configuration against a table of
// who may call what. It takes a call through policy, schema and tenancy, in the order
// of the proxy.
//
// It may not know the server, a target, or the secrets of users.
package dryrun
