package quiesce

import (
	"errors"
	"fmt"
)

// An InUseError means that a volume is in use in a way that cannot be frozen.
// Nothing was done.
type InUseError struct {
	Volume string // as the caller named it
	Why    string
	Harm   string // what SPDK can do
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("volume %s is in use, and %s: %s", e.Volume, e.Harm, e.Why)
}

// A BusyError means that nothing was done, and that trying again may help.
type BusyError struct {
	Why string
	Err error // the cause below, if any; for the log
}

func (e *BusyError) Error() string {
	if e.Err == nil {
		return e.Why
	}
	return e.Why + ": " + e.Err.Error()
}

// An ExistsError means that the snapshot's name is taken. Nothing was done.
type ExistsError struct{ Name string }

func (e *ExistsError) Error() string {
	return fmt.Sprintf("snapshot %s: the name is taken in this lvstore", e.Name)
}

// An AnswerError means that the target answered a question about a volume with what
// the schema does not describe, so that it is unknown who uses the volume. Nothing
// was done.
type AnswerError struct {
	Method string // that was asked
	Err    error  // what is wrong with the answer; for the log
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("cannot read the target's answer to %s, which tells who uses the volume", e.Method)
}

func (e *AnswerError) Unwrap() error { return e.Err }

// errNotThawed means that a path may still be inaccessible.
var errNotThawed = errors.New("the paths' states are not back yet")

// errNoVolume means that what was named is a bdev, but no logical volume.
var errNoVolume = errors.New("it is no logical volume")

// ErrAway means that nothing listens at the target's socket.
var ErrAway = errors.New("the target is away")
