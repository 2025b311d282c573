// Package cert loads the certificates of a TLS server: its certificate and key, a self-signed
// certificate if none is configured, and the authorities that sign client certificates. Callers
// pass the files' paths and the function that reads them.
//
// The package must not depend on the configuration, or on any other package of the proxy.
package cert
