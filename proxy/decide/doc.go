// Package decide makes the decisions on a call that need neither a target nor secrets. Is the
// method known? May the user call it? Does the target's release accept the parameters? May the user
// call the method with them? Package gate uses it for real calls and package dryrun for
// hypothetical ones, so both always make the same decisions.
//
// The package must not depend on how a call arrives, on a target, or on how the decision is used.
package decide
