// Package web serves HTTP: calls by POST, pages, and event streams. One function passes every
// request through the gate: Server.serve in endpoint.go. Start reading there.
//
// The package must not authorize users, and must not depend on the effects of calls. The console's
// own pages are in package console.
package web
