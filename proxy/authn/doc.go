// Package authn answers one question of the proxy: who sends this request? It
// checks HTTP Basic credentials against bcrypt or argon2id hashes, pays for a
// hash only when credentials are new to it, and slows down whoever guesses.
//
// It may not know what the request asks for, what its user may do, or how an
// answer looks on the wire; no other stage of the proxy is imported here.
package authn
