// Package console serves the console, the web page for administrators and tenants. It serves the
// console's files, which are compiled into the program, with headers that protect them in a
// browser. It also serves the pages that only the console requests (sessions, access, the audit
// log). Its calls are those of every client.
//
// It must not decide who may do what: its pages pass the gate like calls.
package console
