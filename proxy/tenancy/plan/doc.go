// Package plan derives from the schema's annotations how each method is treated for tenants. A plan
// states whether they may call it, which parameters name objects of which kind, and what the result
// can contain. It does so once, when the configuration is read.
//
// It must not depend on tenants, on calls, or on a target: package tenancy decides about these with
// the plans.
package plan
