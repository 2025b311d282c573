// Package authntest provides fixtures for authentication tests: an authority that signs client
// certificates, and a JWT issuer that serves its keys over HTTPS and can be made unavailable. The
// package must not depend on the proxy or on package authn. Only tests may use it.
package authntest
