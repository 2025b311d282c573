// Package authn answers one question of the proxy: who sends this request? It
// takes what a request brings as [Evidence] and recognises a user by a password,
// a bearer token, a client certificate or a JWT of an issuer such as a
// Kubernetes cluster. It pays for a check only when credentials are new to it,
// slows down whoever guesses, and tells "you are nobody" from "I cannot tell".
//
// It may not know what the request asks for, what its user may do, or how an
// answer looks on the wire; no other stage of the proxy is imported here.
package authn
