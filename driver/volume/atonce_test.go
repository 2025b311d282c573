package volume

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A lateList delays the list of lvstores until the target has reported that all lvstores are
// loaded. It then counts the calls of bdev_wait_for_examine.
type lateList struct {
	spdkrpc.Caller
	waited     chan struct{} // closed after the first bdev_wait_for_examine
	once       sync.Once
	mu         sync.Mutex
	listed     bool
	afterwards int
}

func (l *lateList) Call(ctx context.Context, method string, params, result any) error {
	switch method {
	case "bdev_lvol_get_lvstores":
		<-l.waited
		defer func() { l.mu.Lock(); defer l.mu.Unlock(); l.listed = true }()
	case "bdev_wait_for_examine":
		l.mu.Lock()
		if l.listed {
			l.afterwards++
		}
		l.mu.Unlock()
		defer l.once.Do(func() { close(l.waited) })
	}
	return l.Caller.Call(ctx, method, params, result)
}

// When an lvstore is listed for the first time, its volumes may still be loading, even if all other
// lvstores are loaded.
func TestNewLvstoreIsListedOnlyAfterItsVolumesAreLoaded(t *testing.T) {
	b := newTestService(t, export.TCP)
	late := &lateList{Caller: b.fault, waited: make(chan struct{})}
	s := b.Target.Service(spdkrpc.NewClient(late))
	_, err := s.Stores(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, late.afterwards)
}

// Detach removes a host's access even if the volume cannot be read.
func TestDetachWorksForUnreadableVolumes(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	host := drivertest.Host("n1")
	_, err := b.Export(t.Context(), v.UUID, host)
	require.NoError(t, err)
	failing := &drivertest.FirstCall{Caller: b.fault, Method: "bdev_get_bdevs", Before: func(context.Context, any) error {
		return &spdkrpc.Error{Method: "bdev_get_bdevs", Kind: spdkrpc.Failed}
	}}
	require.ErrorIs(t, b.Target.Service(spdkrpc.NewClient(failing)).Detach(t.Context(), v.UUID, &host), spdkrpc.Failed)
	assert.Empty(t, b.state(t).Subsystems)
	require.NoError(t, b.Detach(t.Context(), v.UUID, &host))
}
