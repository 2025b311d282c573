package request

// A TargetError means that a target did not respond to a call, or refused the caller.
type TargetError struct {
	Target string // the target's name
	// Cause describes the problem with the target, in a string that is the same for every retry,
	// regardless of which call fails first. It is empty if the text of Err is already the same for
	// every retry.
	Cause string
	// Lost means that the target could not be reached, or did not respond.
	Lost bool
	Err  error
}

func (e *TargetError) Error() string { return e.Err.Error() }

func (e *TargetError) Unwrap() error { return e.Err }
