// Package session keeps the sessions of people who signed in with a browser: their ids, their CSRF
// tokens, and when they end.
//
// The package may not know HTTP, how a user was authenticated, or what a user may do: the caller
// gives each session a value of its own, and decides whether it still counts.
package session
