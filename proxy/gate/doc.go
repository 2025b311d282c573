// Package gate decides whether a request is allowed, regardless of the endpoint that received it,
// and executes allowed requests. [Gate.Enter] takes a request through the stages that all its calls
// share, and [Gate.Perform] takes each call through the remaining stages. Start reading in
// perform.go. Each call is recorded in the audit log and the metrics. One table (errors.go) maps
// errors to responses.
//
// The package must not depend on the endpoints (HTTP requests, the console, and streams). Methods
// that the proxy itself serves are rows in a table that the caller provides (own.go).
package gate
