// Package exports makes, withdraws and lists exports of volumes over NVMe-oF for a person. It plans
// the calls, so that they can be shown first. Then it makes them, and undoes them if one fails.
//
// The package must not know who the person is and how the target is reached. Package driver/export
// makes the exports of the CSI driver.
package exports
