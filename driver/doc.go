// Package driver contains the parts that the CSI driver's services share: the gRPC server with its
// interceptor, the identity service, and the table that maps errors to gRPC codes (errors.go).
//
// The services themselves are packages controller and node, which both use package request. The
// command spdk-csi connects all packages.
//
// Package driver must not depend on the services, their configuration, the proxy's internals, or
// SPDK's JSON.
package driver
