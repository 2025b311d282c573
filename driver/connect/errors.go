package connect

import (
	"context"
	"errors"
)

// Kinds of failure. Errors of this package wrap one of them; the text says what to do.
var (
	// ErrInvalidExport: the context map is invalid. Repeating does not help.
	ErrInvalidExport = errors.New("invalid export")
	// ErrNotConnected: Find and Rescan found no such device on this node.
	ErrNotConnected = errors.New("not connected")
	// ErrUnsupported: a kernel module, a tool or a permission is missing on this node.
	ErrUnsupported = errors.New("not supported on this node")
	// ErrUnreachable: nothing answers at the target's address.
	ErrUnreachable = errors.New("target unreachable")
	// ErrNoSubsystem: the target answers, but has no such subsystem or iSCSI target.
	ErrNoSubsystem = errors.New("subsystem not found on the target")
	// ErrRefused: the target has the subsystem, but does not allow this host.
	ErrRefused = errors.New("target refused this host")
	// ErrNoKeys: the volume requires authentication, but there are no keys for it.
	ErrNoKeys = errors.New("no keys to authenticate with")
	// ErrAuthentication: this node and the target did not accept each other's keys.
	ErrAuthentication = errors.New("authentication failed")
	// ErrNoNamespace: connected, but the target has no such namespace or LUN.
	ErrNoNamespace = errors.New("namespace not found")
	// ErrAmbiguous: more than one device matches, so none is chosen.
	ErrAmbiguous = errors.New("device identity is ambiguous")
	// ErrBusy: the device is in use on this node, or an earlier call on it has not ended.
	ErrBusy = errors.New("in use")
	// ErrTimeout: the deadline passed. It also satisfies errors.Is(err, context.DeadlineExceeded).
	ErrTimeout = timeoutError{}
)

// timeoutError also matches context.DeadlineExceeded, for callers that only know contexts.
type timeoutError struct{}

func (timeoutError) Error() string { return "timed out" }

func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }
