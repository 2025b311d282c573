package controller

import (
	"context"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// spaceInterval is the time between two measurements of lvstore space.
const spaceInterval = time.Minute

// measureSpace records the space of all lvstores as metrics. It does nothing if the controller has
// no credentials of its own or serves no metrics. It keeps the last values of an unresponsive
// target; the metric target_up shows that the target is down.
func (c *Controller) measureSpace(ctx context.Context) {
	if c.targets.metrics == nil || c.credentialsFile == "" {
		return
	}
	services, err := c.openTargets(c.targets.placement, nil, "")
	if err != nil {
		c.log.WarnContext(ctx, "the space of lvstores is not measured", "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.targets.timeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range services {
		wg.Go(func() {
			if all, err := spaceOf(ctx, s); err == nil {
				c.targets.metrics.Lvstores(s.Name, all)
			}
		})
	}
	wg.Wait()
}

func spaceOf(ctx context.Context, s *volume.Service) ([]metrics.Lvstore, error) {
	stores, err := s.Stores(ctx)
	if err != nil {
		return nil, err
	}
	var all []metrics.Lvstore
	for _, st := range stores {
		used, err := s.Usage(ctx, st)
		if err != nil {
			return nil, err
		}
		all = append(all, metrics.Lvstore{Name: st.Name, Total: st.TotalBytes, Free: st.FreeBytes, Promised: used.PromisedBytes, LongestChain: used.LongestChain})
	}
	return all, nil
}
