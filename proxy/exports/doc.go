// Package exports makes, withdraws and lists exports of volumes over NVMe-oF for a person: it plans
// the calls, so that they can be shown before they are made, makes them, and undoes them if one
// fails.
//
// The package must not know who the person is, and how the target is reached. It knows no nodes of
// Kubernetes: the CSI driver has exports of its own (driver/export).
package exports
