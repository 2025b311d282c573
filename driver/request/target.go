package request

// A TargetError is the failure of a call to a target that gave no response, or refused the caller.
type TargetError struct {
	Target string // its name
	// Cause is what went wrong with the target, in words that are the same at each repetition,
	// whichever call was the first to fail. It is empty if the text of Err is the same at each
	// repetition.
	Cause string
	// Lost reports that the target was not reached, or gave no response.
	Lost bool
	Err  error
}

func (e *TargetError) Error() string { return e.Err.Error() }

func (e *TargetError) Unwrap() error { return e.Err }
