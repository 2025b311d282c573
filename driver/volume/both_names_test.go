package volume

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// runAround runs a function immediately before or after the call c.
func runAround(c *drivertest.FirstCall, before bool, do func()) {
	if before {
		c.Before = func(context.Context, any) error { do(); return nil }
		return
	}
	c.After = func(context.Context) { do() }
}

// A maker is one way to create the volume pvc-1 through a service. Like a controller, make first
// checks whether the volume exists.
type maker struct {
	name, method string
	make         func(t *testing.T, b *testService) func(context.Context, *Service) (Volume, error)
}

var makers = []maker{
	{"create", "bdev_lvol_create", func(t *testing.T, b *testService) func(context.Context, *Service) (Volume, error) {
		return func(ctx context.Context, s *Service) (Volume, error) {
			stores, err := s.Stores(ctx)
			if err != nil {
				return Volume{}, err
			}
			spec := Spec{Name: "pvc-1", MinBytes: 8 * MiB, Class: class.Class{Thick: true}}
			v, err := s.Find(ctx, stores, spec)
			switch {
			case errors.Is(err, ErrNotFound):
				return s.Create(ctx, stores[0], spec)
			case err != nil:
				return Volume{}, err
			}
			return v, s.Matches(ctx, v, spec, Origin{})
		}
	}},
	{"clone", "bdev_lvol_clone", func(t *testing.T, b *testService) func(context.Context, *Service) (Volume, error) {
		source := b.create(t, "source", 8)
		snap, err := b.Snapshot(t.Context(), "s", source.UUID)
		require.NoError(t, err)
		return func(ctx context.Context, s *Service) (Volume, error) {
			return s.Clone(ctx, Origin{UUID: snap.UUID, Snapshot: true}, Spec{Name: "pvc-1", MinBytes: 8 * MiB, Class: class.Class{Clear: class.ClearUnmap}})
		}
	}},
}

// attached creates a volume, attaches it to a node and detaches it, which may rename it.
func attached(ctx context.Context, b *testService, create func(context.Context, *Service) (Volume, error)) (string, error) {
	v, err := create(ctx, b.Service)
	if err != nil {
		return "", err
	}
	if _, err := b.Export(ctx, v.UUID, drivertest.Host("n1")); err != nil {
		return "", err
	}
	if err := b.Unexport(ctx, v.UUID, new(drivertest.Host("n1"))); err != nil {
		return "", err
	}
	return v.UUID, b.MarkUsed(ctx, v.UUID)
}

// attachOnce attaches a volume to a node and detaches it. On every SPDK release, the volume's name
// then records that the volume was used.
func (b *testService) attachOnce(t *testing.T, id string) {
	ctx := context.WithoutCancel(t.Context())
	_, err := b.Export(ctx, id, drivertest.Host("n1"))
	require.NoError(t, err)
	require.NoError(t, b.Unexport(ctx, id, new(drivertest.Host("n1"))))
	v, err := b.GetVolume(ctx, id)
	require.NoError(t, err)
	if v.used() {
		return
	}
	require.NoError(t, b.rpc.BdevLvolRename(ctx, spdkrpc.BdevLvolRenameParams{OldName: id, NewName: usedName(v.Name)}))
}

// If two controllers create the same volume, in any order and with lost replies, exactly one volume
// remains, even if a pod uses the volume before the slower controller continues. A volume is
// renamed when it is first used, so SPDK does not refuse a second volume with the original name.
func TestConcurrentCreatesLeaveOneVolume(t *testing.T) {
	for _, m := range makers {
		for name, c := range map[string]struct{ before, lost bool }{
			"used before the second creation": {true, false}, "used before the second creation, whose reply is lost": {true, true},
			"used before the response": {false, false}, "used before the response, which is lost": {false, true},
		} {
			t.Run(m.name+"/"+name, func(t *testing.T) {
				b := newTestService(t, export.TCP)
				do := m.make(t, b)
				others := len(b.state(t).Lvols)
				var first Volume
				use := &drivertest.FirstCall{Caller: b.fault, Method: m.method, LoseReply: c.lost}
				runAround(use, c.before, func() {
					var err error
					first, err = do(context.WithoutCancel(t.Context()), b.Service)
					require.NoError(t, err)
					b.attachOnce(t, first.UUID)
				})
				slow := NewTarget(b.Config).Service(spdkrpc.NewClient(use))
				v, err := do(t.Context(), slow)
				if c.before && c.lost {
					// It is unknown which of the two volumes was created first, so the driver
					// neither uses nor deletes either of them.
					require.ErrorIs(t, err, ErrIncompatible)
					require.ErrorContains(t, err, "pvc-1.used")
					_, err = b.GetVolume(t.Context(), first.UUID)
					require.NoError(t, err)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, first.UUID, v.UUID)
				assert.True(t, v.used(), v)
				for _, s := range []*Service{slow, b.Service} {
					again, err := do(t.Context(), s)
					require.NoError(t, err)
					assert.Equal(t, first.UUID, again.UUID)
				}
				assert.Len(t, b.state(t).Lvols, others+1)
			})
		}
	}
}

// A volume that is renamed during a search is found exactly once.
func TestRenamedVolumeIsFound(t *testing.T) {
	for when, before := range map[string]bool{"before": true, "after": false} {
		t.Run(when, func(t *testing.T) {
			b := newTestService(t, export.TCP)
			stores, err := b.Stores(t.Context())
			require.NoError(t, err)
			_, err = b.Find(t.Context(), stores[:1], Spec{Name: "other"})
			require.ErrorIs(t, err, ErrNotFound) // the service caches lists without the volume
			v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-1", MinBytes: 8 * MiB, Class: class.Class{Thick: true}})
			require.NoError(t, err)
			rename := &drivertest.FirstCall{Caller: b.fault, Method: "bdev_get_bdevs"}
			runAround(rename, before, func() { b.attachOnce(t, v.UUID) })
			finder := &Service{Target: b.Target, rpc: spdkrpc.NewClient(rename), seen: b.seen}
			found, err := finder.Find(t.Context(), stores[:1], Spec{Name: "pvc-1", Class: class.Class{Thick: true}})
			require.NoError(t, err)
			assert.Equal(t, v.UUID, found.UUID)
			assert.True(t, found.used())
		})
	}
}

// A usedDuringLookUp attaches a volume, which renames it, while the driver looks it up by its first
// name after the creation. If the driver looks up the second name concurrently, that look-up comes
// first.
type usedDuringLookUp struct {
	spdkrpc.Caller
	use     func()
	created atomic.Bool
	once    sync.Once
	second  chan struct{} // closed when the look-up of the second name has returned
}

func (c *usedDuringLookUp) Call(ctx context.Context, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	lookUp := func(name string) bool {
		return method == "bdev_get_bdevs" && c.created.Load() && strings.Contains(string(text), strconv.Quote("lvs0/"+name))
	}
	if lookUp("pvc-1") {
		c.once.Do(func() {
			select {
			case <-c.second:
			case <-time.After(200 * time.Millisecond): // the look-ups are sequential
			}
			c.use()
		})
	}
	err = c.Caller.Call(ctx, method, params, result)
	switch {
	case method == "bdev_lvol_create":
		c.created.Store(true)
	case lookUp("pvc-1.used"):
		close(c.second)
	}
	return err
}

// If a volume is used while its creator looks it up, the creator still finds the volume.
func TestVolumeUsedDuringItsCreationIsFound(t *testing.T) {
	b := newTestService(t, export.TCP)
	spec, store := Spec{Name: "pvc-1", MinBytes: 8 * MiB, Class: class.Class{Thick: true}}, b.store(t, "lvs0")
	uses := 0
	caller := &usedDuringLookUp{Caller: b.fault, second: make(chan struct{}), use: func() {
		uses++
		v, err := b.Create(context.WithoutCancel(t.Context()), store, spec)
		if assert.NoError(t, err) {
			b.attachOnce(t, v.UUID)
		}
	}}
	v, err := NewTarget(b.Config).Service(spdkrpc.NewClient(caller)).Create(t.Context(), store, spec)
	require.NoError(t, err)
	assert.True(t, v.used(), v)
	assert.Equal(t, 1, uses)
	assert.Len(t, b.state(t).Lvols, 1)
}
