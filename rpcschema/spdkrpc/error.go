package spdkrpc

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A Kind classifies a failure by how the caller can react. Kinds are errors. Test for them with
// errors.Is(err, spdkrpc.NoSuchDevice).
type Kind string

// These are the kinds of errors.
const (
	NoSuchDevice Kind = "no such object" // the bdev, lvstore, subsystem, … does not exist
	Exists       Kind = "already exists" // an object with that name exists
	NoSpace      Kind = "no space"       // the lvstore or the target's memory is full
	// the object is in use, or another operation is in progress
	Busy Kind = "busy"
	// SPDK refused the parameters. Many failures of logical volumes also have this kind, so check
	// the state.
	InvalidParams  Kind = "invalid parameters"
	MethodNotFound Kind = "no such method" // this release does not have the method
	// not allowed in the target's current state (startup or runtime), so certainly not executed
	WrongState Kind = "wrong state"
	// The proxy protects an object that is in use. The message gives advice. A retry does not help.
	InUse Kind = "in use"
	// The proxy does not allow this user to make the call.
	Denied         Kind = "denied"
	Unreachable    Kind = "unreachable"     // the call was certainly not executed
	OutcomeUnknown Kind = "outcome unknown" // the call may have been executed: check the state before retrying
	NotSaved       Kind = "done, not saved" // the call was executed, but a restart of the target would undo it: repeat it, or wait with spdkgate_config_await
	Failed         Kind = "failed"          // anything else
)

func (k Kind) Error() string { return string(k) }

// These errors say what must be corrected where the kind alone does not. Test for them with
// errors.Is(err, spdkrpc.ErrCredentials).
var (
	// ErrCredentials means that the proxy refused the credentials, or that it did not check them
	// after too many failed logins. The kind is Denied or Unreachable.
	ErrCredentials = errors.New("credentials refused")
	// ErrCertificate means that the caller does not trust the proxy's certificate. Nothing was
	// sent. The kind is Unreachable.
	ErrCertificate = errors.New("certificate not trusted")
	// ErrNotProxy means that the response came neither from spdk-proxy nor from an intermediary in
	// front of it. The kind is OutcomeUnknown or Unreachable.
	ErrNotProxy = errors.New("the server does not respond as spdk-proxy does: check the URL")
)

// An Error describes why one call failed.
type Error struct {
	Method  string
	Kind    Kind
	Code    int    // SPDK's or the proxy's JSON-RPC code; 0 if there was no response
	Message string // SPDK's or the proxy's message, for people; it differs between releases
	Err     error  // the underlying cause, if any
}

func (e *Error) Error() string {
	kind := string(e.Kind)
	if e.Code == jsonrpc.CodeTooMany || e.Code == jsonrpc.CodeTooManyLogins { // the proxy responded
		kind = "limit reached"
	}
	var file *CredentialsFileError
	if errors.As(e.Err, &file) { // the proxy may be reachable
		kind = "no credentials"
	}
	s := fmt.Sprintf("%s: %s", e.Method, kind)
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

// Unwrap returns the kind, the reason if there is one, and the cause.
func (e *Error) Unwrap() []error {
	all := []error{e.Kind}
	if e.Code == jsonrpc.CodeUnauthorized || e.Code == jsonrpc.CodeTooManyLogins {
		all = append(all, ErrCredentials)
	}
	if e.Err == nil {
		return all
	}
	var untrusted *tls.CertificateVerificationError
	if errors.As(e.Err, &untrusted) {
		all = append(all, ErrCertificate)
	}
	return append(all, e.Err)
}

// KindOf returns the kind of err. It returns "" for nil, and Failed for an error that is not an
// *Error.
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

// kinds maps codes to kinds. SPDK returns JSON-RPC's codes and negated errnos. -1 means the wrong
// state or EPERM, so kindOfCode consults the method's schema. SPDK reports many failures of logical
// volumes as -32602 or -32603, regardless of the errno. The messages differ between releases, so no
// code depends on them.
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
	jsonrpc.CodeTooManyLogins:  Unreachable,
	jsonrpc.CodeUnreachable:    Unreachable,
	jsonrpc.CodeDraining:       Unreachable,
	jsonrpc.CodeOutcomeUnknown: OutcomeUnknown,
	jsonrpc.CodeNotSaved:       NotSaved,
}

// schemaKinds maps the kinds used in the schema (x-spdk-kind).
var schemaKinds = map[string]Kind{"busy": Busy, "failed": Failed, "wrong-state": WrongState}

// kindOfCode returns the kind of a code returned by a method. A kind in the schema takes
// precedence. WrongState means that a call was certainly not executed. Therefore, -1 without a kind
// in the schema is WrongState only if the method changes nothing and is allowed in only one state.
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

// answered converts an error response from the target or the proxy to an Error.
func answered(method string, code int, message string) *Error {
	return &Error{Method: method, Kind: kindOfCode(method, code), Code: code, Message: message}
}

// statusKinds maps HTTP responses without a JSON-RPC error to kinds. Such responses come from
// rpc_http_proxy.py or from an intermediary.
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
