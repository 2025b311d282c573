// Package doctor compares what targets have with what should be there. It finds volumes without a
// PersistentVolume, leftover exports and internal objects, interrupted operations, and volumes that
// differ from Kubernetes' records. It removes what certainly holds no data, when asked.
//
// A finding is certain only if two readings some time apart agree, because a call in flight leaves
// the same traces as an interrupted one. One reading suffices only if the proxy refuses the driver,
// or the driver the proxy's certificate. All readings are lists, so this package is for
// administrators and for checks once an hour.
//
// It must not know SPDK's RPC, gRPC, CSI's messages, how targets are reached, or how Kubernetes'
// lists were obtained.
package doctor
