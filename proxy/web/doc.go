// Package web serves HTTP: calls by POST, pages, and event streams. One function takes every
// request through the gate: Server.serve in endpoint.go. Start reading there.
//
// It must not decide who may do what, and must not depend on what a call does. The console's own
// pages are in package console.
package web
