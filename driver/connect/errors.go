package connect

import (
	"context"
	"errors"
)

// These are the kinds of failure. Each error of this package wraps one of these kinds, and its text
// includes a remedy.
var (
	// ErrInvalidExport means that the context map is invalid. A retry with the same context map
	// cannot succeed.
	ErrInvalidExport = errors.New("invalid export")
	// ErrNotConnected means that Find or Rescan did not find the export's device on this node.
	ErrNotConnected = errors.New("not connected")
	// ErrUnsupported means that a kernel module, a tool or a permission is missing on this node.
	ErrUnsupported = errors.New("not supported on this node")
	// ErrUnreachable means that nothing responds at the target's address.
	ErrUnreachable = errors.New("target unreachable")
	// ErrNoSubsystem means that the target responds, but does not have the export's subsystem or
	// iSCSI target.
	ErrNoSubsystem = errors.New("subsystem not found on the target")
	// ErrRefused means that the target has the subsystem, but does not admit this host.
	ErrRefused = errors.New("target refused this host")
	// ErrNoKeys means that the volume requires authentication, but the export contains no keys.
	ErrNoKeys = errors.New("no keys to authenticate with")
	// ErrAuthentication means that this node and the target did not accept each other's keys.
	ErrAuthentication = errors.New("authentication failed")
	// ErrNoNamespace means that the node is connected, but the target does not have the export's
	// namespace or LUN.
	ErrNoNamespace = errors.New("namespace not found")
	// ErrAmbiguous means that more than one device matches, so the package chooses none of them.
	ErrAmbiguous = errors.New("device identity is ambiguous")
	// ErrBusy means that the device is in use on this node, or that an earlier call on it has not
	// ended.
	ErrBusy = errors.New("in use")
	// ErrTimeout means that the deadline has passed. It also satisfies errors.Is(err,
	// context.DeadlineExceeded).
	ErrTimeout = timeoutError{}
)

// timeoutError also matches context.DeadlineExceeded, for callers that test only for errors of
// package context.
type timeoutError struct{}

func (timeoutError) Error() string { return "timed out" }

func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }
