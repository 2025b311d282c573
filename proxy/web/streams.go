package web

import (
	"sync"

	"github.com/spdkgate/spdkgate/proxy/gate"
)

// streams counts the open event streams. Their number is limited, because each of them occupies a
// connection and a goroutine until the client closes it.
type streams struct {
	mu     sync.Mutex
	ofUser map[string]int
	total  int
}

const (
	maxStreams = 64
	// MaxStreamsPerUser is the maximum number of open event streams per user.
	MaxStreamsPerUser = 8
)

// open counts a stream for a user until leave is called.
func (o *streams) open(user string) (leave func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.total >= maxStreams || o.ofUser[user] >= MaxStreamsPerUser {
		return nil, gate.ErrStreams
	}
	if o.ofUser == nil {
		o.ofUser = map[string]int{}
	}
	o.total++
	o.ofUser[user]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.total--
		if o.ofUser[user]--; o.ofUser[user] == 0 {
			delete(o.ofUser, user)
		}
	}, nil
}

// Streams returns the number of open streams.
func (s *Server) Streams() int {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	return s.streams.total
}
