package authn

import (
	"container/list"
	"context"
	"net/netip"
	"runtime"
	"sync"
)

// maxUnknownWaiting is the maximum number of logins from unknown sources that wait. A hash takes
// about 25 ms, so the last login in the queue waits for about 2 s.
const maxUnknownWaiting = 64

// hashing limits how many passwords are hashed concurrently. A source is known if a user has logged
// in from its network before. Logins from known sources take precedence: they wait for at most one
// hash of a login from an unknown source. Logins from unknown sources wait in a queue of limited
// length.
type hashing struct {
	mu      sync.Mutex
	free    int
	known   list.List // elements are of type chan struct{}; each is closed when its login may hash
	unknown list.List
	sources map[netip.Prefix]struct{} // the known sources
}

// maxKnownSources is the maximum number of known sources that are stored.
const maxKnownSources = 4096

func newHashing() *hashing {
	return &hashing{free: max(1, runtime.GOMAXPROCS(0)/2), sources: map[netip.Prefix]struct{}{}}
}

// acquire waits until a password may be hashed. The caller must then call release. The error is
// ErrBusy or ctx's error. If too many logins from unknown sources are already waiting, acquire
// returns ErrBusy immediately.
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
	case <-granted: // the login's turn came at the same moment
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

// addSource records a source from which a user has logged in. If the limit is reached, addSource
// first removes an arbitrary source.
func (h *hashing) addSource(source netip.Addr) {
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

// networkOf returns the network that counts as one source: a single IPv4 address, or an IPv6 /64,
// because a client can choose any address in its /64.
func networkOf(source netip.Addr) netip.Prefix {
	source = source.Unmap().WithZone("")
	bits := source.BitLen()
	if source.Is6() {
		bits = 64
	}
	prefix, _ := source.Prefix(bits) // cannot fail: bits is at most the address's length
	return prefix
}
