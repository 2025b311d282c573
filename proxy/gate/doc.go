// Package gate decides whether a request is allowed, whichever endpoint received it, and executes
// allowed requests. [Gate.Enter] takes a request through the stages that are common to its calls,
// and [Gate.Perform] takes each call through the remaining stages. Start reading in perform.go.
// Each call is recorded in the audit log and the metrics. One table (errors.go) maps errors to
// responses.
//
// The package must not depend on the endpoints (HTTP requests, the console, and streams). The
// caller provides the table of methods that the proxy itself serves (own.go).
package gate
