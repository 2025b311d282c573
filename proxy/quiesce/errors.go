package quiesce

import (
	"errors"
	"fmt"
)

// An InUseError means that a volume is in use and cannot be frozen. Nothing was executed.
type InUseError struct {
	Volume string // the name that the caller used
	Why    string // why the volume cannot be frozen, and the remedy
	Harm   string // the damage that SPDK could do
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("volume %s is in use, and %s: %s", e.Volume, e.Harm, e.Why)
}

// A BusyError means that nothing was executed, and that a retry may help.
type BusyError struct {
	Why string
	Err error // the cause, if any; for the log
}

func (e *BusyError) Error() string {
	if e.Err == nil {
		return e.Why
	}
	return e.Why + ": " + e.Err.Error()
}

// An ExistsError means that the name of the snapshot is already in use. Nothing was executed.
type ExistsError struct{ Name string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("snapshot %s: the name is taken in this lvstore", e.Name)
}

// An AnswerError means that the target's response to a query violates the schema, so that it is
// unknown whether a volume is in use. Nothing was executed.
type AnswerError struct {
	Method string // the method that was called
	Err    error  // the mismatch; for the log
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("cannot read the target's response to %s, which lists what uses the volume", e.Method)
}

func (e *AnswerError) Unwrap() error { return e.Err }

// errNotThawed means that some paths may still be inaccessible.
var errNotThawed = errors.New("the states of the paths are not restored yet")

// errNoVolume means that a bdev is not a logical volume.
var errNoVolume = errors.New("it is not a logical volume")

// ErrAway means that no process is listening at the target's socket.
var ErrAway = errors.New("the target is not running")
