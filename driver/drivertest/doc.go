// Package drivertest holds what tests of several of the driver's rooms use: callers of a target
// that fail or interrupt a chosen call, hosts and exports, and a gRPC server, its log and its
// answers.
//
// Tests only: no program links it. It may not know the rooms that are tested with it, except
// package export, whose values it makes: the internal tests of a room import it, so it cannot
// import that room.
package drivertest
