// Package plan derives from the schema's annotations how each method is treated for tenants. A plan
// states whether they may call it, which parameters name objects of which kind, and what the result
// can contain. Plans are derived once, when the configuration is read.
//
// It must not depend on tenants, calls, or a target: package tenancy uses the plans to decide on
// these.
package plan
