// Package proxy is spdk-proxy: people and programs that must not have access to the target's socket
// call SPDK's RPCs through it, over HTTPS. [Server] makes the parts of a proxy from the
// configuration, serves, reloads and stops them. It makes no decision about a call.
//
// A request comes through an endpoint (packages web, stream and console), passes the stages of
// package gate, each of which makes one decision, and is carried out by package execute. own.go has
// the table of what the proxy serves itself: methods and pages. Start reading in gate/perform.go.
//
// The proxy never forwards a client's text: it decodes the text strictly, decides, and writes a new
// request. One table converts every failure to a response: gate/errors.go.
//
// The package must not depend on the CSI driver. test/checks/structure tests which package may
// import which.
package proxy
