package target

import (
	"errors"
	"fmt"
)

// A BusyError means that a call did not get a slot in time, or that too many calls are waiting. The
// call was not sent.
type BusyError struct {
	User     bool // the user has reached their own limit; other users can still make calls
	InFlight int  // number of running calls: the user's if User is set, otherwise all users'
	Why      string
}

func (e *BusyError) Error() string {
	calls := "calls"
	if e.User {
		calls = "calls of this user"
	}
	return fmt.Sprintf("%d %s are running at the target, and %s", e.InFlight, calls, e.Why)
}

// ErrAbandoned means that the caller's context ended before the call was sent.
var ErrAbandoned = errors.New("the caller stopped waiting before the call was sent")

// A DownError means that the target is unreachable. Nothing was executed.
type DownError struct {
	Socket string
	// Err is the cause. Unwrap does not return it, because its kind describes the failure to
	// connect or to read the release, not a failure of the call.
	Err error
}

func (e *DownError) Error() string {
	return fmt.Sprintf("connect to the target at %s: %v", e.Socket, e.Err)
}
