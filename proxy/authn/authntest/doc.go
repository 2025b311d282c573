// Package authntest provides fixtures for authentication tests: an authority that signs client
// certificates, and a JWT issuer that serves its keys over HTTPS and can be made unavailable. It
// depends on neither the proxy nor package authn, and only tests may use it.
package authntest
