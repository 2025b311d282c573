package export

import "errors"

// Kinds of failure. Errors of this package wrap one of them or an error of spdkrpc; the text says
// what to do.
var (
	// ErrInUse: another host is admitted to the volume, or connected to it.
	ErrInUse = errors.New("in use")
	// ErrBusy: the export changed during the call, or another operation on it is in progress. Try
	// again.
	ErrBusy = errors.New("busy")
	// ErrNotShareable: the volume cannot be exported to several hosts at a time.
	ErrNotShareable = errors.New("not supported")
	// ErrNoAuthentication: the target does not support the authentication that the volume requires.
	ErrNoAuthentication = errors.New("the target cannot authenticate hosts")
	// ErrFenced: the host is fenced, so no volume is exported to it.
	ErrFenced = errors.New("fenced")
	// ErrForeign: the target exports something under the volume's name that this package did not
	// make.
	ErrForeign = errors.New("exported by something else")
)

// errNotExported: there is no export of the volume.
var errNotExported = errors.New("not exported")
