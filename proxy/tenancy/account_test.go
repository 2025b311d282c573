package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// admit calls Admit for a call by the tenant red, without executing the call.
func (w *world) admit(ctx context.Context, method string, params p) (*Grant, error) {
	m, _ := rpcschema.Default().Method(method)
	params, err := decoded(params)
	require.NoError(w.t, err)
	return w.tenancy.Of("alice").Admit(ctx, m, params, w.ask)
}

func volumeOf(name string, size int) p {
	return p{"lvol_name": name, "size_in_mib": size, "lvs_name": "lvs-red", "thin_provision": true}
}

// waits checks that a call is not admitted until another call has ended.
func (w *world) waits(method string, params p) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	decided := make(chan error, 1)
	go func() {
		grant, err := w.admit(ctx, method, params)
		if err == nil {
			grant.Close()
		}
		decided <- err
	}()
	select {
	case err := <-decided:
		require.Fail(w.t, "the call does not wait", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	require.ErrorIs(w.t, <-decided, context.Canceled)
}

// A panic during a quota check affects only the call that is being checked.
func TestPanicReleasesTheQuota(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Volumes: 2, Bytes: 64 * mib})
	m, _ := rpcschema.Default().Method("bdev_lvol_create")
	params, err := decoded(volumeOf("a", 4))
	require.NoError(t, err)
	require.PanicsWithValue(t, "bug", func() {
		_, _ = w.tenancy.Of("alice").Admit(t.Context(), m, params, func(context.Context, string, map[string]any) (json.RawMessage, error) { panic("bug") })
	})
	require.NoError(t, w.create("a", 4))
	require.NoError(t, w.create("b", 4))
}

var failed = &spdkrpc.Error{Kind: spdkrpc.Failed, Code: -32603}

// Volumes can be created concurrently within the quota. A snapshot waits for creations in progress,
// and creations wait for a snapshot in progress.
func TestCreationsRunConcurrentlyWithinTheQuota(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Volumes: 4, Bytes: 64 * mib})
	require.NoError(t, w.create("a", 4))
	first, err := w.admit(t.Context(), "bdev_lvol_create", volumeOf("b", 4))
	require.NoError(t, err)
	second, err := w.admit(t.Context(), "bdev_lvol_create", volumeOf("c", 4))
	require.NoError(t, err)
	w.waits("bdev_lvol_snapshot", p{"lvol_name": "lvs-red/a", "snapshot_name": "s"})
	third, err := w.admit(t.Context(), "bdev_lvol_create", volumeOf("d", 4))
	require.NoError(t, err)
	w.waits("bdev_lvol_create", volumeOf("e", 4)) // exceeds the quota unless another call fails

	_, err = first.Answer(t.Context(), nil, failed)
	require.Error(t, err)
	first.Close()
	second.Close() // the call got no response, so it counts
	_, err = third.Answer(t.Context(), nil, failed)
	require.Error(t, err)
	third.Close()
	alone, err := w.admit(t.Context(), "bdev_lvol_snapshot", p{"lvol_name": "lvs-red/a", "snapshot_name": "s"})
	require.NoError(t, err)
	w.waits("bdev_lvol_create", volumeOf("f", 4))
	_, err = alone.Answer(t.Context(), nil, failed)
	require.Error(t, err)
	alone.Close()
	require.NoError(t, w.create("g", 4))
	require.NoError(t, w.create("h", 4))
	var over *QuotaError
	require.ErrorAs(t, w.create("i", 4), &over)
}

// A volume that is created while the target is listing its volumes counts, whether or not the list
// contains it.
func TestVolumesCreatedDuringAListingCount(t *testing.T) {
	pass := atTime(t)
	w := emptyWorld(t, "v26.05", Quota{Volumes: 2})
	require.NoError(t, w.create("a", 4))
	first, err := w.admit(t.Context(), "bdev_lvol_create", volumeOf("b", 4))
	require.NoError(t, err)
	pass(countKeep)
	late := func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
		answer, err := w.raw(ctx, method, params)
		if method == "bdev_get_bdevs" && first != nil {
			made, err := w.raw(ctx, "bdev_lvol_create", first.Params)
			assert.NoError(t, err)
			_, err = first.Answer(ctx, made, err)
			assert.NoError(t, err)
			first.Close()
			first = nil
		}
		return answer, err
	}
	m, _ := rpcschema.Default().Method("bdev_lvol_create")
	params, err := decoded(volumeOf("c", 4))
	require.NoError(t, err)
	_, err = w.tenancy.Of("alice").Admit(t.Context(), m, params, late)
	var over *QuotaError
	require.ErrorAs(t, err, &over)
}

// If calls repeatedly exceed the quota, the proxy does not list the target's volumes for each of
// them. The space of a deleted volume is available immediately.
func TestCallsBeyondTheQuotaDoNotTriggerARecount(t *testing.T) {
	pass := atTime(t)
	w := emptyWorld(t, "v26.05", Quota{Volumes: 1})
	require.NoError(t, w.create("a", 4))
	var over *QuotaError
	refused := func() { require.ErrorAs(t, w.create("b", 4), &over) }
	refused()
	assert.Zero(t, w.asked(func() {
		for range 20 {
			refused()
		}
	}))
	pass(recountAfter)
	assert.Equal(t, 1, w.asked(refused))
	w.must("alice", "bdev_lvol_delete", p{"name": "lvs-red/a"})
	require.NoError(t, w.create("b", 4))
}

// Concurrent calls never exceed the quota, even if some responses are lost and some calls are
// executed late.
func TestConcurrentCallsNeverExceedTheQuota(t *testing.T) {
	const most, count, players, rounds = 64 * mib, 6, 8, 40
	w := emptyWorld(t, "v26.05", Quota{Bytes: most, Volumes: count})
	var playing, watching sync.WaitGroup
	over := make(chan struct{})
	g := &gambler{world: w}
	within := func() {
		used := g.uses()
		assert.LessOrEqual(t, used.bytes, uint64(most))
		assert.LessOrEqual(t, used.volumes, uint64(count))
	}
	watching.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				within()
			}
		}
	})
	for player := range players {
		playing.Go(func() {
			r := rand.New(rand.NewPCG(uint64(player), 3))
			some := func() string { return fmt.Sprint("v", r.IntN(6)) }
			for range rounds {
				method, params := "bdev_lvol_create", volumeOf(some(), 4*(1+r.IntN(6)))
				switch r.IntN(6) {
				case 0:
					method, params = "bdev_lvol_resize", p{"name": "lvs-red/" + some(), "size_in_mib": 4 * (1 + r.IntN(6))}
				case 1:
					method, params = "bdev_lvol_snapshot", p{"lvol_name": "lvs-red/" + some(), "snapshot_name": some()}
				case 2, 3:
					method, params = "bdev_lvol_delete", p{"name": "lvs-red/" + some()}
				}
				grant, err := w.admit(t.Context(), method, params)
				var refused *QuotaError
				if err != nil {
					assert.True(t, errors.As(err, &refused), err)
					continue
				}
				result, err := json.RawMessage(nil), error(&spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown})
				lost := r.IntN(40) == 0
				if !lost {
					result, err = w.raw(t.Context(), method, grant.Params)
				}
				_, _ = grant.Answer(t.Context(), result, err)
				params = grant.Params
				grant.Close()
				if lost {
					playing.Go(func() { _, _ = w.raw(t.Context(), method, params) })
				}
			}
		})
	}
	playing.Wait()
	close(over)
	watching.Wait()
	within()
}
