// Package tenancy is the stage of the proxy that decides whether the objects named in a call belong
// to the user's tenant. A tenant owns lvstores, bdevs, NQNs and other objects; its users can see
// and change nothing else on the target.
//
// Package tenancy uses only the schema's annotations (x-spdk-resource), so it works for all
// methods:
//
//   - A foreign name in a parameter is replaced with an unused name, and SPDK is called. Therefore,
//     foreign and missing objects take the same path through this code and get the same response:
//     SPDK's own, in every release.
//   - If a name that a call would create is not the tenant's, the call is refused.
//   - A result is reduced to the tenant's objects; parts whose owner is unknown are omitted.
//   - A method that the annotations do not bind to objects is refused (package plan).
//   - The tenant's usage is counted against its quota (quota.go).
//
// The package must not depend on how users are authenticated, what roles allow, or how responses
// are encoded. It imports no other stage of the proxy.
package tenancy
