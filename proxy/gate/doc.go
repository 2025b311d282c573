// Package gate decides on every request, whichever endpoint received it, and executes those that it
// allows. [Gate.Enter] takes a request through the stages that its calls share, and [Gate.Perform]
// takes each call through the others. Start reading in perform.go. Each call is recorded in the
// audit log and the metrics. One table (errors.go) maps errors to responses.
//
// It does not depend on the endpoints: HTTP requests, the console, or streams. Methods that the
// proxy serves itself are rows in a table that the caller provides (own.go).
package gate
