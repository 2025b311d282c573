// Package proxy is spdk-proxy: people and programs that must not have access to the target's
// socket call SPDK's RPCs through it, over HTTPS. [Server] takes a request through stages,
// each of which makes one decision: who sends it (package authn), is it JSON-RPC (jsonrpc),
// is the method known (rpcschema), is it allowed (policy), are the parameters valid
// (rpcschema), are all objects the tenant's own (tenancy). Then it calls SPDK (target), logs
// (auditlog), counts (metrics) and answers. rpc.go shows the order. The configuration of the
// target is saved for its next start after each change (persist), and keys are stored for it
// (keys).
//
// The proxy never forwards a client's text: it decodes the text strictly, decides, and
// writes a new request. One place converts every failure to an answer: answers.go.
//
// The files are in layers and refer only downwards: serve.go makes a server and serves;
// rpc.go and others take a request to its answer; stages.go makes the stages from the
// configuration (package config), and server.go holds them; the other files are values.
// test/structure lists the files of each layer.
//
// The package may not know the CSI driver. The stages know neither each other nor HTTP's
// answers.
package proxy
