// Package console serves the console, the web page for administrators and tenants: its files, which
// are compiled into the program, the headers that protect it in a browser, and the pages that only
// it asks for (sessions, access, the audit log). Its calls are those of every client.
//
// It must not decide who may do what: its pages pass the gate like calls.
package console
