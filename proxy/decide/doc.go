// Package decide makes the decisions about a call that need neither a target nor secrets. Is the
// method known? May the user call it? Does the target's release accept the parameters? May the user
// call the method with them? The gate decides about real calls with it, and package dryrun about
// supposed ones, so a dry run cannot decide otherwise.
//
// It must not depend on how a call arrives, on a target, or on what happens with the decision.
package decide
