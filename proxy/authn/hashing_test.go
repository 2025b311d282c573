package authn

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func stranger(i int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0xc6120000+uint32(i))))
}

// A login from a known source is next in line, however many logins from unknown sources are waiting
// for a password hash. When too many of them are waiting, further logins from unknown sources are
// refused immediately.
func TestUnknownSourcesDoNotDelayKnownSources(t *testing.T) {
	ann, bob := newCountingHash("a", 1), newCountingHash("b", 1)
	a := newBasic(t, Options{}, User{Name: "ann", Hashes: []Hash{ann}}, User{Name: "bob", Hashes: []Hash{bob}})
	a.passwords.hashing.free = 1
	_, err := a.Authenticate(t.Context(), basic("ann", "a"), here)
	require.NoError(t, err)

	ann.block = make(chan struct{})
	waiting := func(strangers, known int) func() bool {
		h := a.passwords.hashing
		return func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.free == 0 && h.unknown.Len() == strangers && h.known.Len() == known
		}
	}
	var strangers sync.WaitGroup
	for i := range 1 + maxUnknownWaiting {
		strangers.Go(func() {
			_, err := a.Authenticate(context.Background(), basic("ann", fmt.Sprint("wrong", i)), stranger(i))
			assert.Error(t, err)
		})
	}
	require.Eventually(t, waiting(maxUnknownWaiting, 0), time.Minute, time.Millisecond)
	for i := range 400 {
		_, err := a.Authenticate(t.Context(), basic("bob", "b"), stranger(1000+i))
		require.ErrorIs(t, err, ErrBusy, "at once")
	}

	known := make(chan int32)
	go func() {
		_, err := a.Authenticate(context.Background(), basic("bob", "b"), here)
		assert.NoError(t, err)
		known <- ann.hashed.Load()
	}()
	require.Eventually(t, waiting(maxUnknownWaiting, 1), time.Minute, time.Millisecond)
	before := ann.hashed.Load()
	ann.block <- struct{}{} // completes the current hash
	assert.LessOrEqual(t, <-known, before+1, "at most one hash for an unknown source was computed earlier")
	close(ann.block)
	strangers.Wait()
	assert.Equal(t, 1, a.passwords.hashing.free, "every slot is released")
}

func TestNumberOfKnownSourcesIsLimited(t *testing.T) {
	h := newHashing()
	for i := range maxKnownSources + 10 {
		h.addSource(stranger(i))
	}
	assert.Len(t, h.sources, maxKnownSources)
	assert.Contains(t, h.sources, networkOf(stranger(maxKnownSources+9)), "the latest source is known")
}

// If a client gives up, its login leaves the queue and does not occupy a slot.
func TestCanceledLoginLeavesTheQueue(t *testing.T) {
	h := newHashing()
	h.free = 0
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, h.acquire(ctx, here), context.Canceled)
	assert.Zero(t, h.unknown.Len())
	h.release()
	assert.Equal(t, 1, h.free)
	require.NoError(t, h.acquire(ctx, here))
}
