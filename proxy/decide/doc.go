// Package decide takes a call through the decisions that need neither a target nor secrets: is the
// method known, may the user call it, does the target's release accept the parameters, and may the
// user call the method with them. The gate decides about real calls with it, and package dryrun
// about supposed ones, so a dry run cannot decide otherwise.
//
// It must not depend on how a call arrives, on a target, or on what happens with the decision.
package decide
