package mirror

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// Kinds of errors.
var (
	// ErrWait means that nothing was started, and the caller should try again later.
	ErrWait = errors.New("the volume is waiting")
	// ErrRefused means that nothing was started, and a retry alone will not help.
	ErrRefused = errors.New("the volume is refused")
	// ErrUnreachable means that a replica is not connected.
	ErrUnreachable = errors.New("the replica is not connected")
	// ErrBusy means that a device is in use.
	ErrBusy = errors.New("the mirror is in use")
	// ErrUnsupported means that the kernel or this package lacks a feature that the volume needs.
	ErrUnsupported = errors.New("not supported on this node")
	// ErrInvalid means that the description of a volume is unusable.
	ErrInvalid = errors.New("invalid volume")
)

// A DecisionError is a decision not to start the mirror, or not to use a replica. It wraps ErrWait
// or ErrRefused.
type DecisionError struct {
	Decision replica.Decision
	// Causes contains the reasons why replicas are unusable, by ID: for example, a replica cannot
	// be read or has other contents.
	Causes [replica.MaxReplicas]error
}

func (e *DecisionError) Error() string {
	text := reasons[e.Decision.Reason]
	if text == "" {
		text = "the replica may have the only copy of some data"
	}
	var because []string
	for _, id := range e.Decision.Because.IDs() {
		word := fmt.Sprintf("replica %d", id)
		if cause := e.Causes[id]; cause != nil {
			word += fmt.Sprintf(" (%v)", cause)
		}
		because = append(because, word)
	}
	if len(because) > 0 {
		text += ": " + strings.Join(because, ", ")
	}
	return fmt.Sprintf("%v: %s", e.Unwrap(), text)
}

// Unwrap returns ErrWait or ErrRefused.
func (e *DecisionError) Unwrap() error {
	if e.Decision.Action == replica.Wait {
		return ErrWait
	}
	return ErrRefused
}

var reasons = map[replica.Reason]string{
	replica.WitnessUnreachable: "the record of its in-sync replicas cannot be read or changed; the driver continues when the API server responds",
	replica.Fenced:             "it was published to another node, or again to this one; only the new publication may use it",
	replica.WitnessOlder:       "a replica has a later epoch than the record of the in-sync replicas, which was restored from a backup; an administrator must repair the record",
	replica.ReplicaMissing:     "required replicas are not connected or cannot be read; the volume starts when they are available again",
	replica.ReplicaNotOurs:     "required replicas have other contents than the driver wrote; check whether the storage server has lost or replaced the logical volume",
	replica.SplitBrain:         "each replica records that the other one has failed; an administrator must choose the one to keep",
	replica.NotRebuilt:         "required replicas are not completely rebuilt",
}
