// Package authn is the proxy's authentication stage. It identifies the user who sent a request from
// [Evidence]: a password, a bearer token, a client certificate, or a JWT from an issuer such as a
// Kubernetes cluster. It caches verified credentials, limits the rate of failed logins, and
// distinguishes wrong credentials from credentials that it currently cannot check.
//
// The package must not depend on the request's content, the user's permissions, or the wire format
// of responses. It imports no other stage of the proxy.
package authn
