// Package driver is the frame of the CSI driver's services: the gRPC server with its interceptor, the identity service, the
// one table that maps errors to gRPC codes (errors.go), and the controller's configuration and credentials.
//
// The services themselves are packages controller and node, which both use package request. The command connects them.
//
// It may not know the services, the proxy's insides, or SPDK's JSON.
package driver
