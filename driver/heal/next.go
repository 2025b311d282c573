package heal

import (
	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
)

// A step is an action that a round performs for a volume.
type step int

// The steps. All of them except nothing and retry apply to a replica.
const (
	nothing   step = iota
	drop           // drop the replica from the mirror
	retry          // repeat the writes that the mirror is holding
	reconnect      // connect to the replica's server again
	add            // start to rebuild the replica
	complete       // end the rebuild if it is complete
	wait           // no step: the next attempt is not due yet; next never returns this step
)

// An observation contains a round's findings about a volume.
type observation struct {
	mirror.Status
	// live contains the replicas on responding servers.
	live replica.Set
	// lost contains the replicas that have been unresponsive for longer than the grace period.
	lost replica.Set
	// disconnected contains the replicas without any connection that the kernel would restore.
	disconnected replica.Set
	// retried means that the writes were repeated recently.
	retried bool
}

// next returns the next step for a volume with replicas that are not in sync. It never drops the
// last current replica.
func next(o observation) (step, replica.ID) {
	legs := o.Members | o.Rebuilding
	// Only one of two legs can be dropped, and the source of a rebuild must never be dropped.
	mayDrop := func(set replica.Set) bool {
		return set.Len() == 1 && legs.Len() == 2 && set != o.Members && (legs&^set)&o.live != 0
	}
	switch gone := legs & o.lost; {
	case gone != 0 && mayDrop(gone):
		return drop, gone.IDs()[0]
	case gone&o.disconnected != 0: // the healer ended its connections, and the other server was lost before the replica was dropped
		return reconnect, (gone & o.disconnected).IDs()[0]
	case gone != 0:
		return nothing, 0 // all writes wait for a server
	}
	switch {
	case o.Failed != 0 || o.LogFailed:
		switch {
		case !o.live.Contains(legs): // it returns, or is lost soon
			return nothing, 0
		case !o.retried:
			return retry, 0
		case mayDrop(o.Failed & legs):
			return drop, (o.Failed & legs).IDs()[0]
		}
		return nothing, 0
	case o.Rebuilding != 0:
		return complete, o.Rebuilding.IDs()[0]
	case o.Missing != 0 && o.live.Contains(o.Missing):
		return add, o.Missing.IDs()[0]
	case o.Missing != 0:
		return reconnect, o.Missing.IDs()[0]
	}
	return nothing, 0
}
