package target

import (
	"errors"
	"fmt"
)

// ErrBusy means that the call waited for its turn in vain and was not sent.
var ErrBusy = errors.New("too many calls are under way at the target")

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
