package export

import "errors"

// These are the kinds of failure. Each error of this package wraps one of these kinds or an error
// of spdkrpc, and its text includes a remedy.
var (
	// ErrInUse means that another host is admitted to the volume, or connected to it.
	ErrInUse = errors.New("in use")
	// ErrBusy means that the export changed during the call, or that another operation on the
	// export is in progress. The caller may retry.
	ErrBusy = errors.New("busy")
	// ErrNotShareable means that the volume cannot be exported to several hosts at a time.
	ErrNotShareable = errors.New("not supported")
	// ErrNotReplicable means that the target cannot export replicas of replicated volumes.
	ErrNotReplicable = errors.New("not supported")
	// ErrNoAuthentication means that the target does not support the authentication method that the
	// volume requires.
	ErrNoAuthentication = errors.New("the target cannot authenticate hosts")
	// ErrFenced means that the host is fenced, so no volume is exported to it.
	ErrFenced = errors.New("fenced")
	// ErrForeign means that the name reserved for the volume's export belongs to an export that
	// this package did not create.
	ErrForeign = errors.New("exported by something else")
)

// errNotExported means that the volume has no export.
var errNotExported = errors.New("not exported")
