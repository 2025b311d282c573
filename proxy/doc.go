// Package proxy is spdk-proxy: it lets people and programs call SPDK's RPCs over
// HTTPS who must not have the target's socket itself. [Server] takes a request
// through stages that each answer one question: who (package authn), what
// (jsonrpc), known (rpcschema), allowed (policy), well formed (rpcschema), theirs
// (tenancy), and what SPDK says (target); then it logs (auditlog), counts (metrics)
// and answers. rpc.go has them in their order. What changes the target is saved for
// its next start (persist), and secrets are placed beside it (keys).
//
// What a client sent is never forwarded: it is decoded strictly, decided on, and
// written anew. Every failure becomes an answer in one place, answers.go.
//
// The files stand in layers and refer only downwards: serve.go makes a server and
// serves; rpc.go and others take a request to its answer; stages.go makes the stages of
// the configuration (package config), and server.go holds them; the other files are
// values. test/structure lists the files of each layer.
//
// It may not know the CSI driver. The stages don't know each other, nor HTTP's
// answers.
package proxy
