// Package session manages the sessions of people who signed in with a browser: their ids, their
// CSRF tokens, and when they end.
//
// The package must not depend on HTTP, on the way a user was authenticated, or on a user's
// permissions. The caller attaches a value to each session, and decides whether the session is
// still valid.
package session
