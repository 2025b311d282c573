package authn

import (
	"container/list"
	"context"
	"net/netip"
	"runtime"
	"sync"
)

// maxUnknownWaiting bounds how many hashes wait for sources that are not known: a
// hash takes some 25 ms, so that the last one waits for about 2 s.
const maxUnknownWaiting = 64

// hashing bounds how many passwords are hashed at once. Those from known sources,
// from where a user has logged in before, go first; the others wait in a bounded
// queue, so that however many there are, users wait for one hash at most.
type hashing struct {
	mu      sync.Mutex
	free    int
	known   list.List // of chan struct{}, closed when it may hash
	unknown list.List
	sources map[netip.Prefix]struct{} // known
}

// maxKnownSources bounds how many known sources are remembered.
const maxKnownSources = 4096

func newHashing() *hashing {
	return &hashing{free: max(1, runtime.GOMAXPROCS(0)/2), sources: map[netip.Prefix]struct{}{}}
}

// acquire waits until a password may be hashed; release ends that. The error is ErrBusy, at once if too
// many unknown sources wait, or ctx's.
func (h *hashing) acquire(ctx context.Context, source netip.Addr) error {
	h.mu.Lock()
	lane := &h.unknown
	if _, known := h.sources[networkOf(source)]; known {
		lane = &h.known
	}
	if h.free > 0 {
		h.free--
		h.mu.Unlock()
		return nil
	}
	if lane == &h.unknown && lane.Len() >= maxUnknownWaiting {
		h.mu.Unlock()
		return ErrBusy
	}
	granted := make(chan struct{})
	place := lane.PushBack(granted)
	h.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-granted: // it has come all the same
		return nil
	default:
		lane.Remove(place)
		return ctx.Err()
	}
}

func (h *hashing) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, lane := range []*list.List{&h.known, &h.unknown} {
		if first := lane.Front(); first != nil {
			close(lane.Remove(first).(chan struct{}))
			return
		}
	}
	h.free++
}

// succeeded makes a source known.
func (h *hashing) succeeded(source netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for other := range h.sources {
		if len(h.sources) < maxKnownSources {
			break
		}
		delete(h.sources, other)
	}
	h.sources[networkOf(source)] = struct{}{}
}

// networkOf is an address, or its network where an address costs nothing: whoever
// has one address of an IPv6 /64 has them all.
func networkOf(source netip.Addr) netip.Prefix {
	source = source.Unmap().WithZone("")
	bits := source.BitLen()
	if source.Is6() {
		bits = 64
	}
	prefix, _ := source.Prefix(bits) // cannot fail: the address has more
	return prefix
}
