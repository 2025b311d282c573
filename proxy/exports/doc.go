// Package exports creates, withdraws and lists NVMe-oF exports of volumes for a person. It first
// plans the calls, so that the person can review them. It then makes the calls, and undoes them if
// one fails.
//
// The package must not depend on who the person is or how the target is reached. It predicts the
// proxy's refusals from what the proxy reports: the person's methods, and the limits of tenants.
// Package driver/export creates the CSI driver's exports.
package exports
