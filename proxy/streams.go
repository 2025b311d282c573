package proxy

import "sync"

// streams counts the event streams that are open. Each keeps a connection and a goroutine for as
// long as the client likes, so their number is bounded.
type streams struct {
	mu     sync.Mutex
	ofUser map[string]int
	total  int
}

const (
	maxStreams        = 64
	maxStreamsPerUser = 8
)

// open counts a stream of a user, until leave is called.
func (o *streams) open(user string) (leave func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.total >= maxStreams || o.ofUser[user] >= maxStreamsPerUser {
		return nil, errStreams
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
