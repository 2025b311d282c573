package proxy

import "sync"

// calls counts the calls under way, so that a stopping server can wait for them.
type calls struct {
	mu       sync.Mutex
	under    int
	draining bool
	drained  chan struct{} // closed when draining and none is under way
}

// enter lets a call in, unless the server is stopping.
func (c *calls) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return errDraining
	}
	c.under++
	return nil
}

func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under--
	if c.draining && c.under == 0 {
		close(c.drained)
	}
}

// drain lets no further call in. The channel is closed when the last one ended.
func (c *calls) drain() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.draining {
		c.draining, c.drained = true, make(chan struct{})
		if c.under == 0 {
			close(c.drained)
		}
	}
	return c.drained
}

func (c *calls) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}
