// Package driver is the CSI driver: the identity, controller and node services, and the gRPC server around them.
//
// A controller call is parsed, then handed to package placement or volume, which work on SPDK targets through
// spdk-proxy; a node call goes to packages connect and mount. This package alone knows the CSI protobufs. It turns
// every error into a gRPC status in one place (errors.go). It keeps no state but what is in flight.
//
// It may not know the proxy's insides, nor SPDK's JSON.
package driver
