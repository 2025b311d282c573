package request

// A TargetError means that a target did not respond to a call, or refused the caller.
type TargetError struct {
	Target string // its name
	// Cause is what went wrong with the target, in words that are the same for every retry,
	// whichever call was the first to fail. It is empty if Err's text is the same for every retry.
	Cause string
	// Lost means that the target was not reached, or did not respond.
	Lost bool
	Err  error
}

func (e *TargetError) Error() string { return e.Err.Error() }

func (e *TargetError) Unwrap() error { return e.Err }
