package proxy

import (
	"log/slog"
	"sync"

	"github.com/spdkgate/spdkgate/proxy/localsocket"
)

// A targetClaim is a lock that tells other proxies on the host that this proxy serves the target. A
// proxy serializes only its own calls. If a deletion runs concurrently with another proxy's call,
// it can leak space or crash the target.
type targetClaim struct {
	socket string
	log    *slog.Logger

	mu      sync.Mutex
	wanted  bool   // true between take and drop
	release func() // nil if another proxy has the claim, or if wanted is false
}

// take marks the target as served by this proxy until drop is called. If another proxy already
// serves the target, take logs an error.
func (c *targetClaim) take() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = true
	if err := c.try(); err != nil {
		c.log.Error("another spdk-proxy serves this target: stop one of them, because calls through two proxies do not wait for each other, and SPDK can lose data", "socket", c.socket, "error", err)
	}
}

// try acquires the lock that marks the target as served by this proxy. The caller must hold mu.
func (c *targetClaim) try() (err error) {
	c.release, err = localsocket.Claim("spdk-proxy", c.socket)
	return err
}

// shared reports whether another proxy serves the target. If this proxy does not have the target's
// lock yet, shared first tries to acquire it.
func (c *targetClaim) shared() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.wanted || c.release != nil {
		return false
	}
	if c.try() != nil {
		return true
	}
	c.log.Info("the other spdk-proxy no longer serves this target", "socket", c.socket)
	return false
}

func (c *targetClaim) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wanted = false; c.release != nil {
		c.release()
		c.release = nil
	}
}
