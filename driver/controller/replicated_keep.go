package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/driver/witness"
)

// ErrNotConfirmed means that an administrator has not confirmed the consequences of a decision, or
// has confirmed the consequences of another decision.
var ErrNotConfirmed = errors.New("not confirmed")

// A KeepDecision is an administrator's decision to continue a replicated volume with the replica on
// one server, and to discard the other replica.
type KeepDecision struct {
	Volume request.VolumeID
	// Server is the storage server whose replica is kept.
	Server string
	// Discard is the storage server whose replica is discarded, as typed by the administrator.
	Discard string
	// StoppedNode is the node that used the volume last. The administrator confirms that this node
	// no longer writes to the volume.
	StoppedNode string
}

// A KeepState describes a volume for an administrator who decides which replica to keep.
type KeepState struct {
	// Done reports whether the decision is in effect.
	Done bool
	// Writer is the node that the volume is published to. It is empty if there is none.
	Writer string
	// Discard is the storage server whose replica the decision discards.
	Discard string
	// Replicas describes each replica.
	Replicas []KeptReplica
	// Unreached is the error of the other server, which still exports the discarded replica.
	Unreached error
}

// A KeptReplica describes a replica.
type KeptReplica struct {
	Number                  replica.ID
	Server                  string
	Keep, InSync, Discarded bool
}

// InspectKeep returns the state of a volume before a decision. It changes nothing.
func (c *Controller) InspectKeep(ctx context.Context, d KeepDecision) (KeepState, error) {
	_, state, err := c.keepState(ctx, d)
	if err != nil {
		return state, fmt.Errorf("keep a replica of volume %s: %w", d.Volume, err)
	}
	return state, nil
}

// KeepReplica carries out a decision: it ends the volume's publication, withdraws the exports of
// the replicas, and records in the witness which replica is discarded. The discarded replica is
// rebuilt in full when a node uses the volume again. KeepReplica fails with [ErrNotConfirmed], and
// changes nothing, unless the decision confirms its consequences. If KeepReplica fails, it can be
// repeated.
func (c *Controller) KeepReplica(ctx context.Context, d KeepDecision) (KeepState, error) {
	failed := func(state KeepState, err error) (KeepState, error) {
		return state, fmt.Errorf("keep a replica of volume %s: %w", d.Volume, err)
	}
	record, state, err := c.keepState(ctx, d)
	if err != nil {
		return failed(state, err)
	}
	if state.Done {
		return state, nil
	}
	if err := d.confirmed(state); err != nil {
		return failed(state, err)
	}
	sites, err := c.sites(ctx, record, nil, "")
	if err != nil {
		return failed(state, err)
	}
	var kept, other *site
	for _, s := range sites {
		if s.place.Server == d.Server {
			kept = s
		} else {
			other = s
		}
	}
	if kept.err != nil {
		return failed(state, fmt.Errorf("the replica on %s cannot be kept, because it cannot be found. Nothing was changed: %w", d.Server, kept.err))
	}
	// The storage servers may have responded slowly, so check once more what is confirmed.
	if _, state, err = c.keepState(ctx, d); err == nil {
		err = d.confirmed(state)
	}
	if err != nil {
		return failed(state, err)
	}
	if _, err := c.witnesses.Publish(ctx, d.Volume.UUID, ""); err != nil {
		return failed(state, witnessError(err))
	}
	withdraw(ctx, sites)
	if kept.err != nil {
		return failed(state, fmt.Errorf("the volume is no longer published, but no replica is discarded yet: repeat the command: storage server %s: %w", d.Server, kept.err))
	}
	if _, err := c.witnesses.Keep(ctx, d.Volume.UUID, kept.id, kept.place); err != nil {
		if errors.Is(err, replica.ErrTransition) {
			err = fmt.Errorf("%w. The volume may have been published again: stop its pod, and repeat the command", err)
		}
		return failed(state, witnessError(err))
	}
	state.Done, state.Unreached = true, other.err
	return state, nil
}

// keepState reads the witness, and checks whether the decision is possible.
func (c *Controller) keepState(ctx context.Context, d KeepDecision) (witness.Record, KeepState, error) {
	if c.witnesses == nil {
		return witness.Record{}, KeepState{}, c.checkReplication()
	}
	record, err := c.witnesses.Get(ctx, d.Volume.UUID)
	w := record.Witness
	switch {
	case err != nil:
		return record, KeepState{}, witnessError(err)
	case record.Deleting:
		return record, KeepState{}, fmt.Errorf("%w: the volume is being deleted", volume.ErrInUse)
	case !w.Created:
		return record, KeepState{}, fmt.Errorf("%w: no node has used the volume yet, so it contains no data: delete it, and create another one", request.ErrUnsupported)
	case w.Replicas.Len() != 2:
		return record, KeepState{}, fmt.Errorf("%w: the volume has %d replicas", request.ErrUnsupported, w.Replicas.Len())
	}
	state := KeepState{Writer: w.Writer.Node}
	var servers []string
	found := false
	for _, id := range w.Replicas.IDs() {
		r := KeptReplica{Number: id, Server: record.Places[id].Server, InSync: w.InSync.Has(id), Discarded: w.Discarded.Has(id)}
		if r.Keep = r.Server == d.Server; r.Keep {
			found, state.Done = true, w.Kept(id)
		} else {
			state.Discard = r.Server
		}
		servers = append(servers, r.Server)
		state.Replicas = append(state.Replicas, r)
	}
	if !found {
		return record, state, fmt.Errorf("%w: storage server %q has no replica of the volume: use %s", request.ErrInvalid, d.Server, strings.Join(servers, " or "))
	}
	return record, state, nil
}

// confirmed fails unless the administrator has typed the names that the consequences depend on.
func (d KeepDecision) confirmed(state KeepState) error {
	switch {
	case d.Discard != state.Discard:
		return fmt.Errorf("%w: the replica on storage server %s would be discarded, but %q is confirmed. Nothing was changed", ErrNotConfirmed, state.Discard, d.Discard)
	case state.Writer != "" && d.StoppedNode != state.Writer:
		return fmt.Errorf("%w: the volume is published to node %s, but %q is confirmed to be stopped. Nothing was changed", ErrNotConfirmed, state.Writer, d.StoppedNode)
	}
	if err := request.CheckNodeID(d.StoppedNode); err != nil {
		return fmt.Errorf("%w: the node that used the volume last must be named. Nothing was changed: %w", ErrNotConfirmed, err)
	}
	return nil
}
