// Package decide makes the decisions about a call that need neither a target nor secrets. Is the
// method known? May the user call it? Does the target's release accept the parameters? May the user
// call the method with them? Package gate uses it for real calls and package dryrun for
// hypothetical calls, so their decisions are always the same.
//
// The package must not depend on the way a call arrives, on a target, or on the use of its
// decisions.
package decide
