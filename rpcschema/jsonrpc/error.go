package jsonrpc

import "fmt"

// These are the codes that JSON-RPC 2.0 defines, and SPDK's only additional code.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603
	// CodeWrongState is SPDK_JSONRPC_ERROR_INVALID_STATE. The method exists, but cannot be called
	// in the target's current state (startup or runtime).
	CodeWrongState = -1
)

// These codes are for a gateway between client and target. They are in the range that JSON-RPC
// reserves for implementations (-32099 to -32000). Each is sent with the HTTP status in its
// comment.
const (
	CodeUnauthorized   = -32001 // 401: not authenticated
	CodeForbidden      = -32003 // 403: not allowed
	CodeInUse          = -32009 // 409: the object is in use in a way that forbids the call
	CodeTooLarge       = -32013 // 413: the request exceeds the target's limits
	CodeTooMany        = -32029 // 429: too many requests
	CodeTooManyLogins  = -32030 // 429: too many failed logins, so the credentials were not checked
	CodeNotSaved       = -32050 // 500: executed, but a restart of the target would undo it
	CodeUnreachable    = -32052 // 502: not sent, because the target is unreachable
	CodeDraining       = -32053 // 503: not sent, because the proxy is stopping
	CodeOutcomeUnknown = -32054 // 504: sent, but no response arrived: check the state before retrying
)

// An Error is the error member of a response.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// Errorf returns an Error with a formatted message.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
