// Package owners remembers, across restarts of the proxy, which tenant created or changed which
// NVMe-oF subsystem.
//
// A subsystem named after a volume belongs to the volume's tenant. If the volume is deleted first,
// nothing on the target says any longer whose the subsystem is, but it still counts in the tenant's
// quota.
//
// The package must not know tenants' rules, calls or a target.
package owners
