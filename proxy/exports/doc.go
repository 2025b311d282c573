// Package exports makes, withdraws and lists NVMe-oF exports of volumes for a person. It first
// plans the calls, so that they can be shown. Then it makes them, and undoes them if one fails.
//
// The package must not depend on who the person is or how the target is reached. The CSI driver's
// exports are made by package driver/export.
package exports
