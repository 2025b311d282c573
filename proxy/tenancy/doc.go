// Package tenancy answers one question of the proxy: is what this call names
// theirs? A tenant is bound to lvstores, bdevs, NQNs and the like; its users see
// and touch nothing else on the target.
//
// It works from the schema's annotations (x-spdk-resource) alone, for every
// method there is or will be:
//
//   - A parameter that names an object that is not theirs is replaced by a name
//     that nothing bears, and SPDK is asked. So an object of somebody else and
//     one that does not exist take the same way through this code and get the
//     same answer, SPDK's own, whatever its release says.
//   - A name that a call would create must be one of theirs; else it is refused.
//   - Of a result stays what is theirs; what cannot be told is left out.
//   - A method that the annotations do not scope is refused (plan.go).
//   - What they take up is counted against their quota (quota.go).
//
// It may not know how users are recognised, what roles allow, or how an answer
// looks on the wire; no other stage of the proxy is imported here.
package tenancy
