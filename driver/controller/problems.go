package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/driver/witness"
)

// Problems returns the most severe problem of each volume, or an empty condition if the volume has
// none. stores contains the lvstore in which each volume was created, by volume handle. The result
// omits volumes whose state is unknown; the error says why. Problems uses the controller's own
// credentials.
func (r *Reloading) Problems(ctx context.Context, stores map[string]string) (map[string]volume.Condition, error) {
	return r.current.Load().problems(ctx, stores)
}

func (c *Controller) problems(ctx context.Context, stores map[string]string) (map[string]volume.Condition, error) {
	ids, unqualified := map[string][]request.VolumeID{}, false
	for handle := range stores {
		if id, err := request.ParseVolumeID(handle); err == nil {
			ids[id.Target] = append(ids[id.Target], id)
			unqualified = unqualified || id.Target == ""
		}
	}
	wanted := slices.DeleteFunc(slices.Clone(c.targets.placement), func(t placement.Target) bool { return !unqualified && len(ids[t.Name]) == 0 })
	overviews, failure := c.overviews(ctx, wanted)
	problems := map[string]volume.Condition{}
	for name, o := range overviews {
		for _, id := range ids[name] {
			if problem, known := o.Problem(id.UUID, stores[id.String()]); known {
				problems[id.String()] = problem
			}
		}
	}
	for _, id := range ids[""] { // the volume may be on any target
		for _, o := range overviews {
			problem, known := o.Problem(id.UUID, stores[id.String()])
			if o.Has(id.UUID) || known && len(overviews) == 1 && len(wanted) == 1 {
				problems[id.String()] = problem
			}
		}
	}
	for _, id := range ids[request.ReplicatedTarget] {
		problem, err := c.replicatedProblem(ctx, id.UUID)
		if err != nil {
			failure = errors.Join(failure, fmt.Errorf("replicated volume %s: %w", id.UUID, err))
			if errors.Is(err, witness.ErrNotFound) {
				continue
			}
			break // the API server probably does not respond to the other calls either
		}
		problems[id.String()] = problem
	}
	return problems, failure
}

// overviews reads targets concurrently. It omits the targets that cannot be read in time, and
// returns their errors.
func (c *Controller) overviews(ctx context.Context, targets []placement.Target) (map[string]volume.Overview, error) {
	tokens, err := config.Credentials(nil, c.credentialsFile, "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.targets.timeout)
	defer cancel()
	all, failures := make([]volume.Overview, len(targets)), make([]error, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() {
			var service *volume.Service
			if service, failures[i] = c.targets.open(t.Name, tokens); failures[i] == nil {
				all[i], failures[i] = service.Overview(ctx)
			}
		})
	}
	wg.Wait()
	byName := map[string]volume.Overview{}
	for i, t := range targets {
		if failures[i] == nil {
			byName[t.Name] = all[i]
		}
	}
	return byName, errors.Join(failures...)
}

// replicatedProblem returns the problem of a replicated volume that its witness records.
func (c *Controller) replicatedProblem(ctx context.Context, id string) (problem volume.Condition, err error) {
	if c.witnesses == nil {
		return problem, fmt.Errorf("%w: enable the component replication", request.ErrUnsupported)
	}
	record, err := c.witnesses.Get(ctx, id)
	if err != nil {
		return problem, err
	}
	var current, others []string
	for _, r := range record.Witness.Replicas.IDs() {
		if server := record.Places[r].Server; record.Witness.InSync.Has(r) {
			current = append(current, server)
		} else {
			others = append(others, server)
		}
	}
	if record.Witness.Created && len(others) > 0 {
		problem = volume.Condition{Reason: "ReplicaMissing", Message: fmt.Sprintf(
			"only the replica on storage server %s is current: the volume would not survive the loss of this server. The replica on %s is lost or being rebuilt", strings.Join(current, ", "), strings.Join(others, ", "))}
	}
	return problem, nil
}
