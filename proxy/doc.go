// Package proxy implements spdk-proxy, through which people and programs call SPDK's RPCs over
// HTTPS without access to the target's socket. A [Server] creates the parts of a proxy from its
// configuration, then serves, reloads and stops them. It makes no decisions about calls.
//
// A request arrives at an endpoint (packages web, stream and console) and passes through the stages
// of package gate, each of which makes one decision. Package execute then carries out the request.
// The table in own.go lists the methods and pages that the proxy serves itself. Start reading at
// gate/perform.go.
//
// The proxy never forwards a client's text. It decodes the text strictly, makes its decisions, and
// encodes a new request. A single table, in gate/errors.go, converts failures to responses.
//
// The package must not depend on the CSI driver. test/checks/structure checks which packages may
// import which others.
package proxy
