// Package authn is the stage of the proxy that authenticates the sender of a request. From
// [Evidence] it identifies a user by a password, a bearer token, a client certificate or a JWT of
// an issuer such as a Kubernetes cluster. It remembers checked credentials, limits the rate of
// failed logins, and distinguishes wrong credentials from credentials that it cannot check at the
// moment.
//
// The package must not know what the request asks for, what its user may do, or how a response
// looks on the wire. It imports no other stage of the proxy.
package authn
