// Package web is the door of HTTP: calls by POST, pages, and streams of events. Each request passes
// the gate in one function (door.go), whatever it asks for.
//
// It must not decide who may do what, and must not depend on what a call does. The console's own
// pages are package console's.
package web
