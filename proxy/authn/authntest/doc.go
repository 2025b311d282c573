// Package authntest makes what tests of authentication need: an authority that
// signs client certificates, and an issuer of JWTs that answers over HTTPS in this
// process and can be away. It knows neither the proxy nor package authn, and only
// tests may use it.
package authntest
