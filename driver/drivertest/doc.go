// Package drivertest provides test helpers for several driver packages: callers that fail or
// interrupt a chosen call to a target, hosts and exports, and a gRPC server with its log and its
// responses.
//
// Only tests import it. It must not depend on the packages that use it, because their internal
// tests import it. The exception is package export, because this package creates values of its
// types.
package drivertest
