// Package auditlog is the log of calls. It contains the entry of a call, the [Log] that writes it
// and limits the entries of unauthenticated requests, and the reader that creates roles from it
// ([ReadLearned]). Both use the same names of keys.
//
// The package must not know the server, or how a call is decided.
package auditlog
