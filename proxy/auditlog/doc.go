// Package auditlog is the log of calls: the entry that each call leaves, the [Log] that
// writes it and bounds what strangers write, and the reader that learns roles of it
// ([ReadLearned]). The keys of an entry are named once, for both.
//
// It may not know the server, nor how a call is decided.
package auditlog
