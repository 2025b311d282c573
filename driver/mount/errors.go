package mount

import "errors"

// Kinds of failure. Errors of this package wrap one of them; the text says what to do.
var (
	// ErrInvalid: the request cannot be done as it is (unknown file system, forbidden mount flag, no block device).
	ErrInvalid = errors.New("invalid request")
	// ErrUnsupported: a tool or kernel feature is missing on this node.
	ErrUnsupported = errors.New("not supported on this node")
	// ErrEmptyDevice: the device holds nothing and must not be formatted.
	ErrEmptyDevice = errors.New("device is empty")
	// ErrHoldsData: the device holds something that is not a file system this package mounts.
	ErrHoldsData = errors.New("device holds other data")
	// ErrWrongFilesystem: the device holds another file system than the requested one.
	ErrWrongFilesystem = errors.New("device holds another file system")
	// ErrUnreadable: the device cannot be read, so its contents are unknown.
	ErrUnreadable = errors.New("device cannot be read")
	// ErrDamaged: the file system is damaged beyond what may be repaired without asking.
	ErrDamaged = errors.New("file system is damaged")
	// ErrBroken: a mounted file system was shut down after errors, or its device is gone. Mounted again it may work.
	ErrBroken = errors.New("mounted file system is broken")
	// ErrConflict: the path is mounted already, from another source or with other options.
	ErrConflict = errors.New("mounted differently")
	// ErrNotMounted: nothing is mounted at the path.
	ErrNotMounted = errors.New("not mounted")
	// ErrNotEmpty: the path to remove holds files.
	ErrNotEmpty = errors.New("not empty")
	// ErrBusy: in use, or an earlier call on the same object has not ended.
	ErrBusy = errors.New("in use")
)
