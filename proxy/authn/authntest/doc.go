// Package authntest provides fixtures for tests of authentication: an authority that signs client
// certificates, and an issuer of JWTs that serves its keys over HTTPS and can be made unavailable.
// It knows neither the proxy nor package authn, and only tests may use it.
package authntest
