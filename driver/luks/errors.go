package luks

import "errors"

// These are the kinds of failure. Each error of this package wraps one of these kinds, and its text
// includes a remedy.
var (
	// ErrInvalid means that the request is invalid, for example because a name is unusable or a
	// device is too small.
	ErrInvalid = errors.New("invalid request")
	// ErrUnsupported means that cryptsetup or a kernel feature is missing on this node.
	ErrUnsupported = errors.New("not supported on this node")
	// ErrNoPassphrase means that there is no passphrase to open the device with.
	ErrNoPassphrase = errors.New("no passphrase")
	// ErrMalformed means that a passphrase cannot be used. The error text contains no part of the
	// passphrase.
	ErrMalformed = errors.New("unusable passphrase")
	// ErrWrongPassphrase means that the passphrase does not open the device.
	ErrWrongPassphrase = errors.New("wrong passphrase")
	// ErrNotEncrypted means that the device contains something other than LUKS2.
	ErrNotEncrypted = errors.New("device is not encrypted")
	// ErrEmpty means that the device is empty but must not be formatted.
	ErrEmpty = errors.New("device is empty")
	// ErrNotOpen means that the device is not open.
	ErrNotOpen = errors.New("not open")
	// ErrBusy means that the plain device is in use, or that an earlier call on it has not ended.
	ErrBusy = errors.New("in use")
)
