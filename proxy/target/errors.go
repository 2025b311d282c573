package target

import (
	"errors"
	"fmt"
)

// A BusyError means that the call waited for a slot in vain, or could not even
// wait. It was not sent.
type BusyError struct {
	User     bool // others could still call: it is the user's own share that is taken
	InFlight int  // calls under way, of the user or in all
	Why      string
}

func (e *BusyError) Error() string {
	whose := "calls"
	if e.User {
		whose = "calls of this user"
	}
	return fmt.Sprintf("%d %s are under way at the target, and %s", e.InFlight, whose, e.Why)
}

// ErrAbandoned means that whoever called left before the call was sent.
var ErrAbandoned = errors.New("the caller left before the call was sent")

// A DownError means that there is no target to send to. Nothing was executed.
type DownError struct {
	Socket string
	// Err is what happened. It is not unwrapped: what became of the question for
	// the release says nothing about the call that needed it.
	Err error
}

func (e *DownError) Error() string {
	return fmt.Sprintf("connect to the target at %s: %v", e.Socket, e.Err)
}
