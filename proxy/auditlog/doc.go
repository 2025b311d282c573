// Package auditlog implements the audit log of calls. It contains the [Entry] for a call, the [Log]
// that writes entries and limits those for unauthenticated requests, and the reader that creates
// roles from entries ([ReadLearned]). The log and the reader share their key names.
//
// The package must not depend on the server, or on the way calls are authorized.
package auditlog
