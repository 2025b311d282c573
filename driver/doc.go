// Package driver is what the CSI driver's services run in: the gRPC server with its interceptor, the identity service, the
// one table from errors to gRPC codes (errors.go), and the controller's files: configuration and credentials.
//
// The services themselves are packages controller and node; the command puts them together. Both stand on package request.
//
// It may not know the services, the proxy's insides, or SPDK's JSON.
package driver
