package mount

import "errors"

// These are the kinds of failure. Each error of this package wraps one of these kinds, and its text
// includes a remedy.
var (
	// ErrInvalid means that the request is invalid (unknown file system, forbidden mount flag, not
	// a block device).
	ErrInvalid = errors.New("invalid request")
	// ErrUnsupported means that a tool or a kernel feature is missing on this node.
	ErrUnsupported = errors.New("not supported on this node")
	// ErrEmptyDevice means that the device is empty but must not be formatted.
	ErrEmptyDevice = errors.New("device is empty")
	// ErrHoldsData means that the device contains data other than a file system of a supported
	// type.
	ErrHoldsData = errors.New("device holds other data")
	// ErrWrongFilesystem means that the type of the device's file system differs from the requested
	// type.
	ErrWrongFilesystem = errors.New("device holds another file system")
	// ErrUnreadable means that the device cannot be read, so its contents are unknown.
	ErrUnreadable = errors.New("device cannot be read")
	// ErrDamaged means that the file system has damage that an administrator must repair.
	ErrDamaged = errors.New("file system is damaged")
	// ErrBroken means that a mounted file system has been shut down after errors, or that its
	// device has been removed. A new mount may fix the problem.
	ErrBroken = errors.New("mounted file system is broken")
	// ErrConflict means that another source is already mounted at the path, or that the source is
	// mounted with other options.
	ErrConflict = errors.New("mounted differently")
	// ErrNotMounted means that nothing is mounted at the path.
	ErrNotMounted = errors.New("not mounted")
	// ErrNotEmpty means that a path cannot be removed because it contains files.
	ErrNotEmpty = errors.New("not empty")
	// ErrBusy means that the object is in use, or that an earlier call on it has not ended.
	ErrBusy = errors.New("in use")
)
