// Package cert holds the certificates of a TLS server: the pair of files that it shows,
// a self-signed one for whoever has none, and the authorities that vouch for client
// certificates. It takes paths, and a function that reads files.
//
// It may not know the configuration, nor any other room of the proxy.
package cert
