// Package gate decides about every request, whichever endpoint received it, and executes those that
// it allows. [Gate.Enter] takes a request through the stages that its calls share, and
// [Gate.Perform] takes each call through the others: start reading in perform.go. Each call ends in
// the audit log and in the metrics, and each error becomes a response in one table (errors.go).
//
// It does not depend on the endpoints: on HTTP's requests, on the console, or on streams. Methods
// that the proxy serves itself are rows of a table that its caller provides (own.go).
package gate
