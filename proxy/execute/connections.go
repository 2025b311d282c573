package execute

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
)

// SPDK accepts one connection per poll (every 4 ms), and the proxy must ask for the release on
// every new connection. Therefore, the Executor reuses the connections of successful operations.

// connections keeps idle connections to the target for later operations of the Quiescer. It is safe
// for concurrent use.
type connections struct {
	mu   sync.Mutex
	idle []*idleConnection
}

// An idleConnection is closed when timer fires.
type idleConnection struct {
	*directTarget
	at    quiesce.Place
	timer *time.Timer
}

// connectionIdle is how long an unused connection is kept. SPDK allows only 64 connections.
const connectionIdle = 5 * time.Second

// connect returns a kept connection to the process that currently listens at the socket. If none is
// kept, it calls connectDirectly.
func (c *connections) connect(ctx context.Context, at quiesce.Place) (*quiesce.Target, error) {
	t := c.take(at)
	if t == nil {
		var err error
		if t, err = connectDirectly(ctx, at); err != nil {
			return nil, err
		}
	}
	made := t.Target
	made.Reuse = func() { c.keep(t, at) }
	return &made, nil
}

// take removes and returns a kept connection to the current process, or returns nil if none is
// kept. It closes connections to other processes.
func (c *connections) take(at quiesce.Place) *directTarget {
	process, _ := persist.ProcessAt(at.Socket)
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.idle) > 0 {
		last := c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		last.timer.Stop()
		if same(last.at, at) && last.Process == process && !last.ended() {
			return last.directTarget
		}
		_ = last.Close()
	}
	return nil
}

func same(a, b quiesce.Place) bool {
	return a.Socket == b.Socket && slices.Equal(a.PeerUIDs, b.PeerUIDs)
}

func (c *connections) keep(t *directTarget, at quiesce.Place) {
	kept := &idleConnection{directTarget: t, at: at}
	c.mu.Lock()
	defer c.mu.Unlock()
	kept.timer = time.AfterFunc(connectionIdle, func() { c.drop(kept) })
	c.idle = append(c.idle, kept)
}

// drop closes a connection that is still kept.
func (c *connections) drop(old *idleConnection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.idle, old); i >= 0 {
		c.idle = slices.Delete(c.idle, i, i+1)
		_ = old.Close()
	}
}
