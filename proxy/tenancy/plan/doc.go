// Package plan derives from the schema's annotations how each method is treated for tenants. A plan
// states whether tenants may call the method, which parameters name which kinds of objects, and
// what the result can contain. Plans are derived once, when the configuration is read.
//
// The package must not depend on specific tenants, calls, or targets: package tenancy applies the
// plans to them.
package plan
