// Package drivertest provides tools for the tests of several driver packages: callers of a target
// that fail or interrupt a chosen call, hosts and exports, and a gRPC server with its log and its
// responses.
//
// Only tests import it. It must not depend on the packages that are tested with it, because their
// internal tests import it. The exception is package export, whose values it creates.
package drivertest
