package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// healthTimeout limits the reading of one target. A target responds to about 1,000 calls per second
// beside its other work.
const healthTimeout = time.Minute

// Health returns the health of volumes by volume handle, as reported by their targets. It uses the
// controller's own credentials. It omits volumes whose state is unknown: those of targets that do
// not respond in time or are not in config.json, and replicated volumes without a readable witness.
func (r *Reloading) Health(ctx context.Context, handles []string) (map[string]volume.Health, error) {
	return r.current.Load().health(ctx, handles)
}

func (c *Controller) health(ctx context.Context, handles []string) (map[string]volume.Health, error) {
	services, err := c.openTargets(c.targets.placement, nil, "")
	if err != nil {
		return nil, err
	}
	ids := map[string][]string{} // by target
	for _, handle := range handles {
		if id, err := request.ParseVolumeID(handle); err == nil {
			ids[id.Target] = append(ids[id.Target], id.UUID)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	all := make(map[string]volume.Health, len(handles))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range services {
		if len(ids[s.Name]) == 0 {
			continue
		}
		wg.Go(func() {
			found, err := s.HealthEach(ctx, ids[s.Name])
			if err != nil {
				c.log.DebugContext(ctx, "the health of some volumes is unknown", "target", s.Name, "error", err)
			}
			mu.Lock()
			defer mu.Unlock()
			for id, h := range found {
				all[request.VolumeID{Target: s.Name, UUID: id}.String()] = h
			}
		})
	}
	wg.Wait()
	for _, id := range ids[request.ReplicatedTarget] {
		if h, known := c.replicatedHealth(ctx, id); known {
			all[request.VolumeID{Target: request.ReplicatedTarget, UUID: id}.String()] = h
		}
	}
	return all, nil
}

// replicatedHealth returns the health of a replicated volume as recorded in its witness.
func (c *Controller) replicatedHealth(ctx context.Context, id string) (h volume.Health, known bool) {
	if c.witnesses == nil {
		return h, false
	}
	record, err := c.witnesses.Get(ctx, id)
	if err != nil {
		c.log.DebugContext(ctx, "the health of a replicated volume is unknown", "volume", id, "error", err)
		return h, false
	}
	h.UUID = id
	var current, others []string
	for _, r := range record.Witness.Replicas.IDs() {
		if server := record.Places[r].Server; record.Witness.InSync.Has(r) {
			current = append(current, server)
		} else {
			others = append(others, server)
		}
	}
	if record.Witness.Created && len(others) > 0 {
		h.Conditions = []volume.Condition{{Reason: "ReplicaMissing", Message: fmt.Sprintf(
			"only the replica on storage server %s is current: the volume would not survive the loss of this server. The replica on %s is lost or being rebuilt", strings.Join(current, ", "), strings.Join(others, ", "))}}
	}
	return h, true
}
