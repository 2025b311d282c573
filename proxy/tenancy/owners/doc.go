// Package owners records, across restarts of the proxy, which tenant created or changed each
// NVMe-oF subsystem.
//
// A subsystem named after a volume belongs to the volume's tenant. If the volume is deleted first,
// the target no longer shows who owns the subsystem, but the subsystem still counts against the
// tenant's quota.
//
// The package must not depend on rules about tenants, on calls, or on the target.
package owners
