package replica

import (
	"errors"
	"fmt"
)

// Errors of the transitions. After an error, the witness is unchanged.
var (
	// ErrFenced means that the witness names another publication.
	ErrFenced = errors.New("the volume was published to another node: this publication must not change its in-sync set")
	// ErrTransition means that the witness does not permit the change.
	ErrTransition = errors.New("the witness does not permit this change")
)

// A Writer is a publication of the volume to a node. Each publication has a new generation, and the
// NQNs of the subsystems that the node connects to contain this generation. A mirror left on a node
// by an earlier publication can therefore never reconnect.
type Writer struct {
	Node       string
	Generation uint64
}

// A Witness is the record of a replicated volume in the Kubernetes API. Its transitions return the
// changed witness. The caller stores the result by compare-and-swap, and reads the witness again if
// that fails.
type Witness struct {
	// Writer is the only publication that may write and change the in-sync set. If its Node is
	// empty, the volume is not published.
	Writer Writer
	// Created reports whether all superblocks have been written. Until then, the volume has no
	// data.
	Created bool
	// Replicas contains all replicas of the volume.
	Replicas Set
	// InSync contains the replicas that have every acknowledged write. It is empty until Created is
	// set.
	InSync Set
	// Held contains the replicas that may be in the writer's mirror, in sync or being rebuilt.
	// These replicas cannot be removed from the volume.
	Held Set
	// Clean reports whether the mirror was stopped without a write in flight. After an unclean
	// stop, the replicas in InSync may differ in the writes that were in flight.
	Clean bool
	// Logged contains replicas that are not in InSync. The log on the replicas in InSync marks
	// every region where a replica in Logged may differ.
	Logged Set
	// Discarded contains replicas whose contents an administrator has given up. They are not in
	// InSync, and are overwritten in full, whatever their superblocks record.
	Discarded Set
	// Epoch counts the writes of InSync, including the starts of the mirror. If a superblock has a
	// later epoch, the witness was restored from a backup.
	Epoch uint64
}

// NewWitness returns the witness of a volume that is being created.
func NewWitness(replicas Set) Witness { return Witness{Replicas: replicas} }

// Publish records which node may write from now on. An empty name means that no node may write. The
// controller stores the result before it removes the export of any replica, so that the previous
// node cannot acknowledge a write that is missing on a fenced replica.
func (w Witness) Publish(node string) Witness {
	if w.Writer.Node != node {
		w.Writer, w.Held = Writer{node, w.Writer.Generation + 1}, 0
	}
	return w
}

// Create records that all replicas have superblocks and are in sync.
func (w Witness) Create(self Writer) (Witness, error) {
	if err := w.permits(self); err != nil {
		return w, err
	}
	if w.Created {
		return w, fmt.Errorf("%w: the volume is already created", ErrTransition)
	}
	w.Created, w.InSync, w.Clean, w.Epoch = true, w.Replicas, true, 1
	return w, nil
}

// Start records the replicas that the writer starts the mirror from, and the replicas that the log
// covers. Both sets come from a [Decision]. After Start is stored, a stop counts as unclean until
// Stop is stored. The writer writes the new epoch to the superblocks of these replicas before it
// starts the mirror.
func (w Witness) Start(self Writer, inSync, logged Set) (Witness, error) {
	started := w
	started.Held, started.Logged, started.Clean = inSync, logged, false
	started, err := started.SetInSync(self, inSync)
	if err != nil {
		return w, err
	}
	return started, nil // the epoch is new
}

// Stop records that the mirror was stopped without a write in flight. The writer stores the result
// after the mirror has been removed.
func (w Witness) Stop(self Writer) (Witness, error) {
	if err := w.permits(self); err != nil {
		return w, err
	}
	if !w.Created {
		return w, fmt.Errorf("%w: the volume is not created yet", ErrTransition)
	}
	w.Clean = true
	return w, nil
}

// Log records that the log marks every region where the dropped replicas may differ. The writer
// stores the result when the table without the dropped replicas is active, and all earlier writes
// have returned.
func (w Witness) Log(self Writer, dropped Set) (Witness, error) {
	if err := w.permits(self); err != nil {
		return w, err
	}
	if dropped&w.InSync != 0 || !w.Replicas.Contains(dropped) {
		return w, fmt.Errorf("%w: only replicas of the volume that are not in sync can be in the log", ErrTransition)
	}
	w.Logged |= dropped
	return w, nil
}

// SetInSync changes the in-sync set. To remove a replica, the writer stores the witness before the
// mirror continues without that replica. To add a replica, the writer first writes all superblocks
// of the new set. The result always has a new epoch, even if the set is unchanged. The API server
// does not store a write without a change, so such a write would not overtake a delayed write.
func (w Witness) SetInSync(self Writer, inSync Set) (Witness, error) {
	if err := w.permits(self); err != nil {
		return w, err
	}
	switch {
	case !w.Created:
		return w, fmt.Errorf("%w: the volume is not created yet", ErrTransition)
	case inSync == 0:
		return w, fmt.Errorf("%w: at least one replica must remain in the in-sync set", ErrTransition)
	case !w.Replicas.Contains(inSync) || !w.Held.Contains(inSync):
		return w, fmt.Errorf("%w: the in-sync set would contain a replica that is not in the mirror", ErrTransition)
	}
	w.InSync, w.Epoch = inSync, w.Epoch+1
	w.Logged &^= inSync
	w.Discarded &^= inSync
	return w, nil
}

// Keep records an administrator's decision to continue with one replica, even if it lacks
// acknowledged writes. It discards the contents of all other replicas. The volume must not be
// published, so that no mirror still uses the discarded replicas as current.
func (w Witness) Keep(id ID) (Witness, error) {
	switch {
	case !w.Replicas.Has(id):
		return w, fmt.Errorf("%w: the volume has no replica %d", ErrTransition, id)
	case !w.Created:
		return w, fmt.Errorf("%w: the volume is not created yet", ErrTransition)
	case w.Kept(id):
		return w, nil
	case w.Writer.Node != "":
		return w, fmt.Errorf("%w: the volume is published to node %s", ErrTransition, w.Writer.Node)
	}
	w.InSync, w.Discarded, w.Epoch = SetOf(id), w.Replicas&^SetOf(id), w.Epoch+1
	w.Held, w.Logged, w.Clean = 0, 0, false
	return w, nil
}

// Kept reports whether the volume continues with one replica, and all others are discarded.
func (w Witness) Kept(id ID) bool {
	return w.InSync == SetOf(id) && w.Discarded == w.Replicas&^SetOf(id)
}

// Hold records the replicas in the mirror. The writer stores the result before it adds a replica to
// the mirror, and after it has removed a replica.
func (w Witness) Hold(self Writer, held Set) (Witness, error) {
	if err := w.permits(self); err != nil {
		return w, err
	}
	if !held.Contains(w.InSync) || !w.Replicas.Contains(held) {
		return w, fmt.Errorf("%w: the mirror must have all replicas that are in sync, and only replicas of the volume", ErrTransition)
	}
	w.Held = held
	return w, nil
}

// Add adds a blank replica, which is not in sync.
func (w Witness) Add(id ID) (Witness, error) {
	if id >= MaxReplicas || w.Replicas.Has(id) || !w.Created {
		return w, fmt.Errorf("%w: replica %d cannot be added", ErrTransition, id)
	}
	w.Replicas |= SetOf(id)
	return w, nil
}

// Remove removes a replica from the volume. The replica must be neither in sync nor in the writer's
// mirror, because its ID may be reused for another replica. Delete the replica only after the
// result is stored.
func (w Witness) Remove(id ID) (Witness, error) {
	switch {
	case !w.Replicas.Has(id):
		return w, nil
	case w.InSync.Has(id) || w.Held.Has(id):
		return w, fmt.Errorf("%w: replica %d is in use", ErrTransition, id)
	case !w.Created:
		return w, fmt.Errorf("%w: the volume is not created yet", ErrTransition)
	}
	w.Replicas &^= SetOf(id)
	w.Logged &^= SetOf(id)
	w.Discarded &^= SetOf(id)
	return w, nil
}

func (w Witness) permits(self Writer) error {
	if self.Node == "" || w.Writer != self {
		return ErrFenced
	}
	return nil
}
