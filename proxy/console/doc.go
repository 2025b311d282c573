// Package console serves the console, the web page for administrators and tenants. It serves the
// console's files, which are compiled into the program, with headers that protect them in the
// browser. It also serves the endpoints that only the console uses: sessions, access, and the audit
// log. Otherwise, the console makes the same calls as any client.
//
// The package must not authorize users: like calls, the console's requests pass through package
// gate.
package console
