package replica

import (
	"errors"
	"fmt"
)

// Errors of the transitions. The witness stays as it was.
var (
	// ErrFenced means that the witness names another publication.
	ErrFenced = errors.New("the volume was published to another node: this publication must not change its in-sync set")
	// ErrTransition means that the witness does not permit the change.
	ErrTransition = errors.New("the witness does not permit this change")
)

// A Writer is a publication of the volume to a node. Each publication has a new generation, and the
// node connects under a host NQN that follows from both. So a mirror that a node has kept from an
// earlier publication never gets its connections back.
type Writer struct {
	Node       string
	Generation uint64
}

// A Witness is what Kubernetes' API records of a replicated volume. Its transitions return the
// changed witness; the caller stores it by compare-and-swap, and reads again if that fails.
type Witness struct {
	// Writer is who may write, and alone may change the in-sync set; no Node: nobody.
	Writer Writer
	// Created reports whether superblocks have been written. Before that, no data exist.
	Created bool
	// Replicas are all replicas of the volume.
	Replicas Set
	// InSync are the replicas that contain every acknowledged write. Empty until Created.
	InSync Set
	// Held are the replicas that the mirror of the writer may have, in sync or being rebuilt. None
	// of them is removed from the volume.
	Held Set
	// Epoch counts the changes of InSync.
	Epoch uint64
}

// NewWitness returns the witness of a volume that is being created.
func NewWitness(replicas Set) Witness { return Witness{Replicas: replicas} }

// Publish names the node that may write from now on; empty: none. The controller stores it before
// it removes the export of any replica, so that the former node can acknowledge no write that a
// fenced replica lacks.
func (w Witness) Publish(node string) Witness {
	if w.Writer.Node != node {
		w.Writer, w.Held = Writer{node, w.Writer.Generation + 1}, 0
	}
	return w
}

// Create records that all replicas have superblocks, and that all are in sync.
func (w Witness) Create(self Writer) (Witness, error) {
	if err := w.permits(self); err != nil {
		return w, err
	}
	if w.Created {
		return w, fmt.Errorf("%w: the volume is already created", ErrTransition)
	}
	w.Created, w.InSync, w.Epoch = true, w.Replicas, 1
	return w, nil
}

// Start changes the in-sync set to the replicas from which the writer starts the mirror.
func (w Witness) Start(self Writer, inSync Set) (Witness, error) {
	w.Held = inSync
	return w.SetInSync(self, inSync)
}

// SetInSync changes the in-sync set. To remove a replica, the writer stores the witness before it
// lets the mirror go on without that replica. To add one, it first writes all superblocks of the
// new set.
func (w Witness) SetInSync(self Writer, inSync Set) (Witness, error) {
	if err := w.permits(self); err != nil {
		return w, err
	}
	switch {
	case !w.Created:
		return w, fmt.Errorf("%w: the volume is not created yet", ErrTransition)
	case inSync == 0:
		return w, fmt.Errorf("%w: one replica must stay in the in-sync set", ErrTransition)
	case !w.Replicas.Contains(inSync) || !w.Held.Contains(inSync):
		return w, fmt.Errorf("%w: the in-sync set would have a replica that the mirror does not have", ErrTransition)
	}
	if w.InSync != inSync {
		w.InSync, w.Epoch = inSync, w.Epoch+1
	}
	return w, nil
}

// Hold records the replicas that the mirror has. The writer stores it before it adds a replica to
// the mirror, and after the mirror no longer has one.
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

// Add names another replica, which is blank and not in sync.
func (w Witness) Add(id ID) (Witness, error) {
	if id >= MaxReplicas || w.Replicas.Has(id) || !w.Created {
		return w, fmt.Errorf("%w: replica %d cannot be added", ErrTransition, id)
	}
	w.Replicas |= SetOf(id)
	return w, nil
}

// Remove removes a replica from the volume. It must neither be in sync nor in the mirror of the
// writer, because its ID may be given to another replica. The replica is deleted only after this is
// stored.
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
	return w, nil
}

func (w Witness) permits(self Writer) error {
	if self.Node == "" || w.Writer != self {
		return ErrFenced
	}
	return nil
}
