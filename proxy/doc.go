// Package proxy implements spdk-proxy. People and programs without access to the target's socket
// use it to call SPDK's RPCs over HTTPS. [Server] makes the parts of a proxy from the
// configuration, and serves, reloads and stops them. It does not make decisions on calls.
//
// A request arrives at an endpoint (packages web, stream and console), passes through the stages of
// package gate, each of which makes one decision, and is carried out by package execute. own.go
// contains the table of what the proxy serves itself: methods and pages. Start reading in
// gate/perform.go.
//
// The proxy never forwards a client's text. It decodes the text strictly, makes its decisions, and
// writes a new request. One table, in gate/errors.go, converts every failure to a response.
//
// The package must not depend on the CSI driver. test/checks/structure checks which package may
// import which.
package proxy
