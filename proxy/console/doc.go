// Package console serves the console, the web page for administrators and tenants. It serves the
// console's files, which are compiled into the program, with headers that protect them in a
// browser. It also serves the endpoints that only the console requests (sessions, access, the audit
// log). Otherwise, the console makes the same calls as any client.
//
// The package must not authorize users: the console's requests pass through package gate like
// calls.
package console
