package heal

import (
	"context"
	"time"

	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
)

// dispensable returns the replicas whose I/O may fail, one at a time, without an error for a user
// of the mirror.
func dispensable(s mirror.Status) replica.Set {
	switch {
	case s.Failed.Len() == 2: // Retry keeps the first one
		return 0
	case s.Members.Len() == 2:
		return s.Members
	}
	return s.Rebuilding
}

// releasing calls do, which suspends or removes the mirror, and therefore waits for the I/O of all
// replicas. If the server of a dispensable replica is lost meanwhile, and the other server
// responds, releasing ends the connections of that replica. The mirror holds the writes that then
// fail, do ends, and the next round drops the replica.
func (v *volume) releasing(ctx context.Context, set replica.Set, do func() error) error {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ctx := context.WithoutCancel(ctx) // do can outlast its time limit
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				v.releaseLost(ctx, set)
			}
		}
	}()
	err := do()
	close(ended)
	<-done
	return err
}

func (v *volume) releaseLost(ctx context.Context, set replica.Set) {
	o := v.observe(ctx)
	if o.lost.Len() != 1 || o.live.Len() != 1 || !set.Contains(o.lost) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for _, r := range v.Replicas {
		if !o.lost.Has(r.ID) {
			continue
		}
		v.Log.WarnContext(ctx, "an operation is waiting for a lost server; its connections are ended", "volume", v.Name, "replica", r.ID, "server", r.Server)
		if err := v.Connector.Release(ctx, r.Export); err != nil {
			v.Log.WarnContext(ctx, "cannot end the connections of a lost server", "volume", v.Name, "replica", r.ID, "error", err)
		}
	}
}
