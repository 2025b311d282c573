package controller

import (
	"context"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// healthTimeout limits the reading of one target. A target responds to about 1,000 calls per second
// beside its other work.
const healthTimeout = time.Minute

// Health returns the health of volumes by volume handle, as reported by their targets. It uses the
// controller's own credentials. It omits volumes whose state is unknown: replicated volumes,
// and volumes of targets that do not respond in time or are not in config.json.
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
	return all, nil
}
