// Package owners records, across restarts of the proxy, which tenant created or changed each
// NVMe-oF subsystem.
//
// A subsystem named after a volume belongs to the volume's tenant. If the volume is deleted first,
// the target no longer shows the subsystem's owner, but the subsystem still counts in the tenant's
// quota.
//
// The package must not depend on tenants' rules, on calls, or on a target.
package owners
