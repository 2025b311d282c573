// Package doctor compares the objects on targets with those that should exist. It finds volumes
// without a PersistentVolume, leftover exports and internal objects, interrupted operations, and
// volumes that differ from Kubernetes' records. On request, it removes objects that certainly
// contain no data.
//
// A reading is the state of one target at one time. A finding is certain only if two readings,
// taken some time apart, agree, because a call in flight leaves the same traces as an interrupted
// call. A single reading is sufficient only if the proxy refuses the driver, or if the driver does
// not trust the proxy's certificate. Each reading lists all objects, so this package is meant for
// administrators and for checks that run once an hour.
//
// Package doctor must not depend on SPDK's RPCs, gRPC, CSI messages, how targets are reached, or
// how the lists from Kubernetes were obtained.
package doctor
