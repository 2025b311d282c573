package proxy

import (
	"errors"
	"sync"
)

// held counts the memory that users' calls take, in requests that were read and
// in answers that were not. Nobody may have more than their bound, nor than is
// left over: who sends much and reads slowly must not take what others need.
type held struct {
	mu    sync.Mutex
	of    map[string]int
	total int
}

const (
	heldPerUser = 64 << 20
	heldInAll   = 256 << 20
	heldBesides = 2 << 20
	// decodedSize is how many bytes the values of a request take for one of its text.
	decodedSize = 4
)

var errHeld = errors.New("too much is under way for this user")

// take counts n bytes of a user. When they are too many already, the error is
// errHeld, and none are counted; what is not too much for somebody who has
// nothing is never.
func (h *held) take(user string, n int) (taken int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.of[user]; before > 0 && before+n > min(heldPerUser, heldInAll-h.total) {
		return 0, errHeld
	}
	h.add(user, n)
	return n, nil
}

// keep counts n bytes that are there already.
func (h *held) keep(user string, n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(user, n)
	return n
}

// less gives back what of n bytes was not needed, and tells what was.
func (h *held) less(user string, n, needed int) int {
	h.give(user, n-needed)
	return needed
}

// full tells whether a user has so much, or all together, that there should be no
// more answers. It is a little more than take allows, so that whoever has nothing
// but one batch is bounded by what batches are.
func (h *held) full(user string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[user] > heldPerUser+heldBesides || h.of[user] > heldBesides && h.total > heldInAll+heldBesides
}

func (h *held) give(user string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(user, -n)
}

// giveHeld gives back what an exchange holds, and lets calls go on that waited for it.
func (s *Server) giveHeld(x *exchange) {
	s.held.give(x.user, x.held)
	if x.answered > 0 {
		s.target.RoomMade()
	}
}

func (h *held) add(user string, n int) {
	if h.of == nil {
		h.of = map[string]int{}
	}
	h.total += n
	if h.of[user] += n; h.of[user] == 0 {
		delete(h.of, user)
	}
}
