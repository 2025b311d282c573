package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/driver/witness"
)

// Witnesses stores the witnesses of replicated volumes. [witness.Store] implements it.
type Witnesses interface {
	Get(ctx context.Context, name string) (witness.Record, error)
	Create(ctx context.Context, name string, places ...witness.Place) (witness.Record, error)
	Publish(ctx context.Context, name, node string) (witness.Record, error)
	Keep(ctx context.Context, name string, id replica.ID, place witness.Place) (witness.Record, error)
	BeginDelete(ctx context.Context, name string) (witness.Record, error)
	Delete(ctx context.Context, name string) error
}

// SetWitnesses sets the store for witnesses. Without a store, the controller does not support
// replicated volumes. Call SetWitnesses before the controller serves calls.
func (c *Controller) SetWitnesses(w Witnesses) { c.witnesses = w }

// SetWitnesses sets where witnesses are stored, for the current and all later configurations.
func (r *Reloading) SetWitnesses(w Witnesses) { r.current.Load().SetWitnesses(w) }

// replicatedNamespace is the UUID namespace for hashing the names of replicated volumes. A repeated
// CreateVolume must find the witness that the first call created, so this UUID must never change.
var replicatedNamespace = uuid.MustParse("3c7f9a52-64a0-4f0e-9b0d-8f2f4a1d6c11")

// replicatedUUID returns the UUID of the replicated volume with a requested name. The UUID is also
// the name of the volume's witness.
func replicatedUUID(name string) string {
	return uuid.NewSHA1(replicatedNamespace, []byte(name)).String()
}

// errReplicated returns the error of a call that does not support replicated volumes. id is the id
// of such a volume.
func errReplicated(id request.VolumeID) error {
	return fmt.Errorf("%w: volume %s has replicas on two storage servers, which can be created, published, unpublished and deleted only: "+
		"it cannot be copied, restored, resized, moved, or in a snapshot; copy its data within a pod instead. Nothing was changed", request.ErrUnsupported, id)
}

// checkReplicated fails if a request needs features that replicated volumes do not support.
// CreateVolume calls it before creating anything.
func checkReplicated(n creation, capabilities []*csi.VolumeCapability) error {
	wanted := n.spec.Class
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format+". Nothing was created", append([]any{class.ErrParameter}, args...)...)
	}
	for _, c := range capabilities {
		switch c.GetAccessMode().GetMode() {
		case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		default:
			return fmt.Errorf("%w: access mode %s: only one node at a time can use a replicated volume: use ReadWriteOnce or ReadWriteOncePod. Nothing was created", request.ErrUnsupported, c.GetAccessMode().GetMode())
		}
	}
	for _, option := range []string{"ctrl_loss_tmo", "fast_io_fail_tmo"} {
		if _, ok := wanted.NVMe[option]; ok {
			return refuse("%s must not be set with replicas: %q, because the node plugin decides when a replica is dropped: remove it", option, "2")
		}
	}
	switch {
	case n.origin.UUID != "":
		return refuse("a volume with replicas: %q cannot be a copy: create it empty, or use replicas: %q", "2", "1")
	case wanted.Thick:
		return refuse("thin: %q cannot be used with replicas: %q: remove it", "false", "2")
	case wanted.Clear == class.ClearUnmap || wanted.Clear == class.ClearNone:
		return refuse("clearMethod: %q cannot be used with replicas: %q, because unwritten parts of the replicas would differ: use zeroes", wanted.Clear, "2")
	case wanted.Authentication != class.NoAuthentication:
		return refuse("authentication cannot be used with replicas: %q: remove it, or use replicas: %q", "2", "1")
	case wanted.Limits != (class.Limits{}):
		return refuse("I/O limits cannot be used with replicas: %q: remove them, or use replicas: %q", "2", "1")
	}
	return nil
}

// checkReplication fails if this controller cannot manage replicated volumes.
func (c *Controller) checkReplication() error {
	switch {
	case c.witnesses == nil:
		return fmt.Errorf("%w: replicas: %q needs the component replication, which is not installed: install it, or use replicas: %q. Nothing was created", request.ErrUnsupported, "2", "1")
	case c.credentialsFile == "":
		return fmt.Errorf("%w: replicas: %q needs a Secret for the controller itself, so that csi-attacher can publish a volume again after an outage of a storage server: see SPDKCSI_SECRET. Nothing was created", request.ErrUnsupported, "2")
	}
	return nil
}

// witnessError converts an error from the witness store. If a retry may have a different outcome,
// the error wraps [request.ErrWitness], which makes callers retry.
func witnessError(err error) error {
	for _, certain := range []error{
		nil, witness.ErrNotInstalled, witness.ErrNotFound, witness.ErrOlder, witness.ErrReplaced, witness.ErrDeleting, witness.ErrOther, witness.ErrInUse, witness.ErrAltered, witness.ErrUnreadable,
		replica.ErrTransition, replica.ErrFenced,
	} {
		if errors.Is(err, certain) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", request.ErrWitness, err)
}

// A site is a replica and the storage server that stores it.
type site struct {
	id     replica.ID
	place  witness.Place
	config config.Target
	target *volume.Service
	// replica is the replica's lvol. It is valid only if err is nil.
	replica volume.Volume
	err     error
}

// sites opens the storage servers of a volume and looks for its replicas. If a server does not
// respond in time, only the site of that server contains an error.
func (c *Controller) sites(ctx context.Context, r witness.Record, secrets map[string]string, secretParam string) ([]*site, error) {
	var all []*site
	for _, id := range r.Witness.Replicas.IDs() {
		s := &site{id: id, place: r.Places[id]}
		var err error
		if s.config, err = c.targets.config(s.place.Server); err != nil {
			return nil, err
		}
		if s.target, err = c.openTarget(request.VolumeID{Target: s.place.Server}, secrets, secretParam); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	forEach(all, func(s *site) {
		ctx, cancel := context.WithTimeout(ctx, c.targets.timeout)
		defer cancel()
		s.replica, s.err = s.target.FindReplica(ctx, s.place.Lvol)
	})
	return all, nil
}

func forEach(sites []*site, f func(*site)) {
	var running sync.WaitGroup
	for _, s := range sites {
		running.Go(func() { f(s) })
	}
	running.Wait()
}

// failures returns the errors of the sites, and the names of the failed servers.
func failures(sites []*site) (servers string, err error) {
	var names []string
	var all []error
	for _, s := range sites {
		if s.err != nil {
			names, all = append(names, s.place.Server), append(all, s.err)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " and "), errors.Join(all...)
}

// deleteReplicated deletes an unpublished replicated volume: first its replicas, and then its
// witness.
func (c *Controller) deleteReplicated(ctx context.Context, id request.VolumeID, secrets map[string]string) error {
	if c.witnesses == nil {
		return c.checkReplication()
	}
	record, err := c.witnesses.BeginDelete(ctx, id.UUID)
	switch {
	case errors.Is(err, witness.ErrNotFound):
		return nil
	case errors.Is(err, witness.ErrInUse):
		return fmt.Errorf("delete volume %s: %w: %w: unpublish it first", id, volume.ErrInUse, err)
	case err != nil:
		return fmt.Errorf("delete volume %s: %w", id, witnessError(err))
	}
	sites, err := c.sites(ctx, record, secrets, provisionerSecret)
	if err != nil {
		return err
	}
	forEach(sites, func(s *site) {
		if s.err == nil {
			s.err = s.target.DeleteReplica(ctx, s.replica)
		}
		if errors.Is(s.err, volume.ErrNotFound) {
			s.err = nil
		}
	})
	if servers, err := failures(sites); err != nil {
		return fmt.Errorf("delete volume %s: its replica on %s is not deleted: %w", id, servers, err)
	}
	if err := c.witnesses.Delete(ctx, id.UUID); err != nil {
		return fmt.Errorf("delete volume %s: %w", id, witnessError(err))
	}
	return nil
}
