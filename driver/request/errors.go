package request

import "errors"

// Kinds of failure of the CSI services themselves. Package driver converts these errors, and the
// errors of lower packages, to gRPC codes.
var (
	ErrInvalid       = errors.New("invalid request")
	ErrUnsupported   = errors.New("not supported")
	ErrNoSuchID      = errors.New("not found")
	ErrNoSuchPath    = errors.New("not found")
	ErrUnknownTarget = errors.New("target is not configured")
	ErrInFlight      = errors.New("another call is in progress")
	ErrCredentials   = errors.New("unusable credentials")
	ErrNoCredentials = errors.New("no credentials")
	ErrBadToken      = errors.New("invalid starting_token")
	ErrElsewhere     = errors.New("published elsewhere on this node")
	ErrNotStaged     = errors.New("not staged")
	ErrConflict      = errors.New("staged differently")
	// ErrWitness means that the witness of a replicated volume could not be read or changed.
	ErrWitness = errors.New("the record of the volume's in-sync replicas cannot be read or changed")
	// ErrNoReplica means that the required replicas cannot be reached.
	ErrNoReplica  = errors.New("the volume is waiting for a replica")
	ErrLeftBehind = errors.New("the volume is still connected or mounted on this node: repeat the call, or unstage the volume")
)
