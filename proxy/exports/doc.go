// Package exports creates, withdraws and lists NVMe-oF exports of volumes for a person. It first
// plans the calls, so that the person can review them. Then it makes the calls, and undoes them if
// one fails.
//
// The package must not depend on the person's identity, or on the way the target is reached. It
// predicts the proxy's refusals from the permitted methods and tenants' limits that the proxy
// reports. The CSI driver uses package driver/export instead.
package exports
