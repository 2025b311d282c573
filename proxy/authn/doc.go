// Package authn is the proxy's authentication stage. It identifies the sender of a request from
// [Evidence]: a password, a bearer token, a client certificate, or a JWT from an issuer such as a
// Kubernetes cluster. It remembers verified credentials, limits the rate of failed logins, and
// distinguishes wrong credentials from those that it currently cannot check.
//
// The package must not depend on what is requested, what the user may do, or how a response looks
// on the wire. It imports no other stage of the proxy.
package authn
