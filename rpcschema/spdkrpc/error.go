package spdkrpc

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A Kind says what went wrong, in the terms in which a caller decides what to
// do next. Kinds are errors: errors.Is(err, spdkrpc.NoSuchDevice).
type Kind string

// The kinds of errors.
const (
	NoSuchDevice   Kind = "no such object"     // the bdev, lvstore, subsystem, … is not there
	Exists         Kind = "already exists"     // an object of that name is there
	NoSpace        Kind = "no space"           // the lvstore is full, or the target's memory
	Busy           Kind = "busy"               // in use, or another operation is under way
	InvalidParams  Kind = "invalid parameters" // SPDK refused the parameters; many lvol failures look so: read back
	MethodNotFound Kind = "no such method"     // this release has no such method
	WrongState     Kind = "wrong state"        // not in the target's present state (startup, runtime): surely not executed
	InUse          Kind = "in use"             // the proxy protects what is in use; its message says what to do, and repeating does not help
	Denied         Kind = "denied"             // the proxy does not let this user do it
	Unreachable    Kind = "unreachable"        // the call surely was not executed
	OutcomeUnknown Kind = "outcome unknown"    // it may have been executed: read back before trying again
	Failed         Kind = "failed"             // anything else
)

func (k Kind) Error() string { return string(k) }

// An Error is the failure of one call.
type Error struct {
	Method  string
	Kind    Kind
	Code    int    // SPDK's or the proxy's JSON-RPC code; 0 when no answer came
	Message string // SPDK's or the proxy's words, for people: they change between releases
	Err     error  // the cause below, if any
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s", e.Method, e.Kind)
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Code != 0 {
		s += fmt.Sprintf(" (code %d)", e.Code)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// KindOf is the kind of err: "" for nil, Failed for what is no *Error.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Failed
}

// kinds is the one table from codes to kinds. SPDK answers with JSON-RPC's own
// codes and with negated errnos. -1 is both the wrong state and EPERM, so that
// only the schema of the method can tell. It answers many
// failures of logical volumes with -32602 or -32603 whatever the errno; their
// text differs between releases and is never looked at.
var kinds = map[int]Kind{
	jsonrpc.CodeInvalidParams:  InvalidParams,
	jsonrpc.CodeInvalidRequest: InvalidParams,
	jsonrpc.CodeParseError:     InvalidParams,
	jsonrpc.CodeMethodNotFound: MethodNotFound,
	jsonrpc.CodeInternalError:  Failed,
	-int(syscall.ENODEV):       NoSuchDevice,
	-int(syscall.ENOENT):       NoSuchDevice,
	-int(syscall.EEXIST):       Exists,
	-int(syscall.ENOSPC):       NoSpace,
	-int(syscall.ENOMEM):       NoSpace,
	-int(syscall.EBUSY):        Busy,
	-int(syscall.EAGAIN):       Busy,
	-int(syscall.EINVAL):       InvalidParams,
	-int(syscall.EACCES):       Denied,

	jsonrpc.CodeUnauthorized:   Denied,
	jsonrpc.CodeForbidden:      Denied,
	jsonrpc.CodeInUse:          InUse,
	jsonrpc.CodeTooLarge:       InvalidParams,
	jsonrpc.CodeTooMany:        Unreachable,
	jsonrpc.CodeUnreachable:    Unreachable,
	jsonrpc.CodeDraining:       Unreachable,
	jsonrpc.CodeOutcomeUnknown: OutcomeUnknown,
}

// schemaKinds are the kinds that the schema names (x-spdk-kind).
var schemaKinds = map[string]Kind{"busy": Busy, "failed": Failed, "wrong-state": WrongState}

// kindOfCode is what a code means from one method. What the schema says of it
// comes first. -1 that it does not explain is the wrong state only from a method
// that changes nothing and belongs to one state: WrongState says that a call
// was surely not executed.
func kindOfCode(method string, code int) Kind {
	if m, known := rpcschema.Default().Method(method); known {
		if kind, said := schemaKinds[m.KindOf(code)]; said {
			return kind
		}
		if code == jsonrpc.CodeWrongState && !m.Mutates && len(m.State) == 1 {
			return WrongState
		}
	}
	if kind, ok := kinds[code]; ok {
		return kind
	}
	return Failed
}

// answered makes the Error of an error that the target or the proxy answered.
func answered(method string, code int, message string) *Error {
	return &Error{Method: method, Kind: kindOfCode(method, code), Code: code, Message: message}
}

// statusKinds are the kinds of HTTP answers that contain no JSON-RPC error of
// their own, as from rpc_http_proxy.py or something in between.
var statusKinds = map[int]Kind{
	http.StatusBadRequest:          InvalidParams,
	http.StatusUnauthorized:        Denied,
	http.StatusForbidden:           Denied,
	http.StatusNotFound:            Unreachable,
	http.StatusTooManyRequests:     Unreachable,
	http.StatusBadGateway:          OutcomeUnknown, // an intermediary may have forwarded the call
	http.StatusServiceUnavailable:  Unreachable,
	http.StatusGatewayTimeout:      OutcomeUnknown,
	http.StatusInternalServerError: OutcomeUnknown,
}
