package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/driver/witness"
)

// createReplicated creates a volume with two replicas, or finds the volume that an earlier call
// created. It first creates the witness, which records where the replicas are placed, so that each
// retry uses the same lvstores. If a replica definitely cannot be created in its lvstore,
// createReplicated undoes everything.
func (c *Controller) createReplicated(ctx context.Context, claim *request.Claim, n creation, parameters map[string]string) (*csi.Volume, error) {
	if err := c.checkReplication(); err != nil {
		return nil, err
	}
	id := request.VolumeID{Target: request.ReplicatedTarget, UUID: replicatedUUID(n.spec.Name)}
	if err := claim.Take(id.UUID); err != nil {
		return nil, err
	}
	record, err := c.witnesses.Get(ctx, id.UUID)
	if errors.Is(err, witness.ErrNotFound) {
		var places []witness.Place
		if places, err = c.placeReplicas(ctx, n, id.UUID); err != nil {
			return nil, err
		}
		record, err = c.witnesses.Create(ctx, id.UUID, places...)
	}
	switch {
	case err != nil:
		return nil, witnessError(err)
	case record.Deleting: // perhaps by a creation that could not be undone
		return nil, errors.Join(fmt.Errorf("%w: %s", witness.ErrDeleting, id), c.deleteReplicated(ctx, id, n.secrets))
	case record.Witness.Replicas.Len() != 2:
		return nil, fmt.Errorf("%w: volume %s has %d replicas", volume.ErrIncompatible, id, record.Witness.Replicas.Len())
	}
	sites, err := c.sites(ctx, record, n.secrets, provisionerSecret)
	if err != nil {
		return nil, err
	}
	forEach(sites, func(s *site) {
		if errors.Is(s.err, volume.ErrNotFound) && !record.Witness.Created {
			s.replica, s.err = s.create(ctx, n, id.UUID)
		}
		if s.err == nil {
			s.err = s.target.Matches(ctx, s.replica, s.spec(n, id.UUID), volume.Origin{})
		}
	})
	if servers, failed := failures(sites); failed != nil {
		failed = fmt.Errorf("its replica on %s cannot be created: %w", servers, failed)
		if !record.Witness.Created && (errors.Is(failed, volume.ErrNoSpace) || errors.Is(failed, volume.ErrOutOfRange)) {
			return nil, errors.Join(failed, c.undoReplicated(ctx, id, n.secrets))
		}
		return nil, failed
	}
	return c.replicatedVolume(id, record, sites, n, parameters), nil
}

// undoReplicated deletes everything that a failed creation has created, so that a retry can choose
// other lvstores.
func (c *Controller) undoReplicated(ctx context.Context, id request.VolumeID, secrets map[string]string) error {
	if err := c.deleteReplicated(ctx, id, secrets); err != nil {
		return fmt.Errorf("undo the creation: %w", err)
	}
	return nil
}

// spec returns the specification of a replica's lvol. The lvol is larger than the volume by the
// size of the replica's head.
func (s *site) spec(n creation, id string) volume.Spec {
	spec := n.spec
	spec.Replica = &volume.ReplicaID{Volume: id, Number: int(s.id)}
	spec.MinBytes = withHead(spec.MinBytes)
	if spec.MaxBytes > 0 {
		spec.MaxBytes += replica.HeadBytes
	}
	return spec
}

// withHead returns the size of a replica, given the size of its volume.
func withHead(bytes int64) int64 { return bytes + replica.HeadBytes }

// create creates the replica in the lvstore that the witness names.
func (s *site) create(ctx context.Context, n creation, id string) (volume.Volume, error) {
	spec := s.spec(n, id)
	store, _, _ := strings.Cut(s.place.Lvol, "/")
	stores, err := s.target.Stores(ctx)
	if err != nil {
		return volume.Volume{}, err
	}
	i := slices.IndexFunc(stores, func(st volume.Store) bool { return st.Name == store })
	if i < 0 {
		return volume.Volume{}, fmt.Errorf("target %s: %w: %q", s.place.Server, volume.ErrStoreMissing, store)
	}
	return s.target.Create(ctx, stores[i], spec)
}

// replicatedVolume describes a volume whose replicas exist. The smaller replica determines the
// volume's size.
func (c *Controller) replicatedVolume(id request.VolumeID, record witness.Record, sites []*site, n creation, parameters map[string]string) *csi.Volume {
	r := request.Replicated{UID: record.UID}
	topology := map[string]string{}
	for _, s := range sites {
		if size := s.replica.SizeBytes - replica.HeadBytes; r.SizeBytes == 0 || size < r.SizeBytes {
			r.SizeBytes = size
		}
		r.Replicas = append(r.Replicas, request.Replica{Number: int(s.id), Server: s.place.Server, UUID: s.replica.UUID})
		maps.Copy(topology, s.config.Topology)
	}
	m := map[string]string{request.KeyReplicated: r.Format(), request.KeyMayFormat: "true", connect.KeyLvolSize: fmt.Sprint(r.SizeBytes)}
	maps.Copy(m, n.spec.Class.ForNodes)
	maps.Copy(m, n.spec.Class.NVMe)
	v := &csi.Volume{VolumeId: id.String(), CapacityBytes: r.SizeBytes, VolumeContext: withClaim(m, parameters)}
	if len(topology) > 0 {
		v.AccessibleTopology = []*csi.Topology{{Segments: topology}}
	}
	return v
}

// placeReplicas chooses an lvstore on each of two storage servers. Both lvstores have room for a
// replica, and a single node can reach both servers. placeReplicas changes nothing.
func (c *Controller) placeReplicas(ctx context.Context, n creation, id string) ([]witness.Place, error) {
	allowed, err := c.replicaTargets(n.spec.Class)
	if err != nil {
		return nil, err
	}
	candidates := c.replicaCandidates(allowed, n.spec)
	if candidates, err = n.where.Filter(candidates); err != nil {
		return nil, err
	}
	services, err := c.openTargets(candidates, n.secrets, provisionerSecret)
	if err != nil {
		return nil, err
	}
	if n.rawBlock {
		if candidates, err = suitForRawBlock(ctx, services, candidates); err != nil {
			return nil, err
		}
	}
	found, err := c.survey(ctx, services, volume.Spec{Class: n.spec.Class})
	if err != nil {
		return nil, err
	}
	named := byName(candidates)
	stores, err := placement.Stores(slices.DeleteFunc(found.stores, func(s placement.Store) bool { _, ok := named[s.Target]; return !ok }), n.spec.Class)
	if err != nil {
		return nil, err
	}
	stores = slices.DeleteFunc(stores, func(s placement.Store) bool { return s.RoomBytes < withHead(n.spec.MinBytes) })
	stores = placement.Order(stores, n.spec.Name, n.spec.Class.Strategy, func(target string) int { return n.where.Rank(named[target]) })
	first, second, ok := placement.Pair(stores, named, n.spec.Class.ReplicaSpread)
	if !ok {
		return nil, fmt.Errorf("%w: no two of the storage servers %s that the same node can reach%s have an lvstore with room for %d bytes. Nothing was created; add space or a storage server, or use replicas: %q",
			volume.ErrNoSpace, strings.Join(slices.Sorted(maps.Keys(named)), ", "), apart(n.spec.Class), withHead(n.spec.MinBytes), "1")
	}
	place := func(s placement.Store, number int) witness.Place {
		return witness.Place{Server: s.Target, Lvol: s.Name + "/" + volume.ReplicaID{Volume: id, Number: number}.LvolName()}
	}
	return []witness.Place{place(first, 0), place(second, 1)}, nil
}

// replicaCandidates returns the targets among which the two are chosen. There is an alternative to
// each of the two. If the class spreads replicas, there are candidates for each value of the label.
func (c *Controller) replicaCandidates(allowed []placement.Target, spec volume.Spec) (candidates []placement.Target) {
	choice := c.targets.choice
	spread := spec.Class.ReplicaSpread
	if spread == "" {
		choice.Candidates++
		_, candidates = choice.Of(allowed, spec.Name)
		return candidates
	}
	for _, value := range labelValues(allowed, spread) {
		_, some := choice.Of(slices.DeleteFunc(slices.Clone(allowed), func(t placement.Target) bool { return t.Labels[spread] != value }), spec.Name)
		candidates = append(candidates, some...)
	}
	return candidates
}

// labelValues returns the values of a label, sorted.
func labelValues(targets []placement.Target, label string) (values []string) {
	for _, t := range targets {
		values = append(values, t.Labels[label])
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// apart returns the condition of a class that spreads replicas, for use in an error.
func apart(c class.Class) string {
	if c.ReplicaSpread == "" {
		return ""
	}
	return fmt.Sprintf(" and whose labels %q differ", c.ReplicaSpread)
}

func byName(targets []placement.Target) map[string]placement.Target {
	all := map[string]placement.Target{}
	for _, t := range targets {
		all[t.Name] = t
	}
	return all
}

// replicaTargets returns the targets that the class allows and that can export replicas. It fails
// if there are fewer than two such targets.
func (c *Controller) replicaTargets(wanted class.Class) ([]placement.Target, error) {
	allowed, err := c.allowedTargets(wanted, false)
	if err != nil {
		return nil, err
	}
	var able []placement.Target
	var names, unable []string
	for _, t := range allowed {
		cfg, err := c.targets.config(t.Name)
		if err == nil && cfg.TargetType == config.TargetLoop {
			err = fmt.Errorf("target %s is simulated", t.Name)
		}
		if err == nil {
			err = c.targets.byName[t.Name].CheckReplicable()
		}
		if _, ok := t.Labels[wanted.ReplicaSpread]; err == nil && wanted.ReplicaSpread != "" && !ok {
			err = fmt.Errorf("target %s has no label %q", t.Name, wanted.ReplicaSpread)
		}
		if err != nil {
			unable = append(unable, err.Error())
			continue
		}
		able, names = append(able, t), append(names, t.Name)
	}
	values := labelValues(able, wanted.ReplicaSpread)
	if spread := wanted.ReplicaSpread; spread != "" && len(able) > 1 && len(values) == 1 {
		return nil, fmt.Errorf("%w: cannot place 2 replicas on storage servers with different values of the label %q: all suitable storage servers have %s=%s. Nothing was created; add a storage server, or remove replicaSpread",
			class.ErrParameter, spread, spread, values[0])
	}
	if len(able) < 2 {
		text := fmt.Sprintf("the class allows only one suitable storage server, %q", strings.Join(names, ""))
		if len(able) == 0 {
			text = "the class allows no suitable storage server"
		}
		if len(unable) > 0 {
			text += " (" + strings.Join(unable, "; ") + ")"
		}
		return nil, fmt.Errorf("%w: cannot place 2 replicas on different storage servers: %s. Nothing was created; add a storage server or use replicas: %q", class.ErrParameter, text, "1")
	}
	return able, nil
}
