package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

var errClosed = errors.New("the proxy has closed its connections")

// A Conn is one connection, to a target whose release is known. What was fitted
// to that release goes out on this connection or not at all: a target that was
// replaced by another release meanwhile is another connection.
type Conn struct {
	target  *Target
	socket  *spdkrpc.Socket
	gone    <-chan struct{}
	release rpcschema.Release

	// Calls that are waited for, or wait for a slot to be sent here; in all, and
	// by user. Under Target.mu.
	load   int
	loadOf map[string]int
}

// dial makes a connection for calls.
func (t *Target) dial() (*Conn, *DownError) {
	ctx, cancel := context.WithTimeout(context.Background(), t.connectWait)
	defer cancel()
	socket, gone, release, err := t.open(ctx)
	if err != nil {
		return nil, &DownError{Socket: t.config.Socket, Err: err}
	}
	go t.closeWhenGone(socket, gone)
	return &Conn{target: t, socket: socket, gone: gone, release: release, loadOf: map[string]int{}}, nil
}

// open connects to whoever may be trusted at the socket, and learns the release.
func (t *Target) open(ctx context.Context) (*spdkrpc.Socket, <-chan struct{}, rpcschema.Release, error) {
	socket := spdkrpc.NewSocket(t.config.Socket, spdkrpc.WithPeerCheck(t.checkPeer), spdkrpc.WithTimeout(0)) // its callers bound their calls
	fail := func(err error) (*spdkrpc.Socket, <-chan struct{}, rpcschema.Release, error) {
		_ = socket.Close()
		return nil, nil, rpcschema.Release{}, err
	}
	var v struct {
		Version string `json:"version"`
	}
	if err := socket.Call(ctx, versionMethod, nil, &v); err != nil {
		return fail(err)
	}
	release, err := rpcschema.ParseRelease(v.Version)
	if err != nil {
		return fail(fmt.Errorf("what it answers to %s is not understood: %w", versionMethod, err))
	}
	gone, living := socket.Connected()
	if !living {
		return fail(errors.New("it closed the connection"))
	}
	socket.SetLimits(jsonrpc.LimitsV2605)
	if release.Before(rpcschema.MustRelease("v26.05")) {
		socket.SetLimits(jsonrpc.LimitsBeforeV2605)
	}
	return socket, gone, release, nil
}

// closeWhenGone closes a socket whose connection ended: on its own it would connect
// again, to a target of perhaps another release.
func (t *Target) closeWhenGone(socket *spdkrpc.Socket, gone <-chan struct{}) {
	<-gone
	_ = socket.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.config.Log.Debug("target closed a connection", "socket", t.config.Socket)
	}
}

// Release is that of the target behind this connection.
func (c *Conn) Release() rpcschema.Release { return c.release }

func (c *Conn) broken() bool { return broken(c.gone) }

// Call sends one call of a user, when the user has a slot, and waits for its answer
// until the deadline, whether or not ctx ends: what was sent runs, and its outcome
// belongs into the log. ctx ends only the wait for a slot. No params at all are
// sent when params is nil. Calls of the proxy's own, for nobody, are the user "".
//
// A call that SPDK has not answered by its deadline keeps its slot until it
// does, or for a long while.
func (c *Conn) Call(ctx context.Context, who, method string, params map[string]any, deadline time.Duration) (json.RawMessage, error) {
	c.addLoad(who, 1)
	defer c.addLoad(who, -1)
	leave, err := c.target.listing.enter(ctx, c.release, method, c.target.config.QueueWait)
	if err != nil {
		return nil, err
	}
	answer := c.target.sizes.find(method, params)
	slot, err := c.target.queue.acquire(ctx, who, answer, c.target.config.QueueWait)
	if err != nil {
		leave()
		return nil, err
	}
	give := func() {
		c.target.queue.release(slot)
		leave()
	}
	if c.broken() {
		give()
		return nil, &DownError{Socket: c.target.config.Socket, Err: errors.New("the target closed the connection")}
	}
	var argument any // a nil map would be sent as null
	if params != nil {
		argument = params
	}
	pending, err := c.socket.Start(ctx, method, argument)
	if err != nil {
		give()
		return nil, err
	}
	started := time.Now()
	bounded, cancel := context.WithDeadline(context.WithoutCancel(ctx), started.Add(deadline))
	defer cancel()
	var result json.RawMessage
	err = pending.Wait(bounded, &result)
	if errors.Is(err, context.DeadlineExceeded) {
		go c.awaitLate(pending, give, who, method, params, started)
		return nil, err
	}
	answer.seen(len(result))
	give()
	return result, err
}

func (c *Conn) addLoad(who string, n int) {
	c.target.mu.Lock()
	defer c.target.mu.Unlock()
	c.load += n
	if c.loadOf[who] += n; c.loadOf[who] == 0 {
		delete(c.loadOf, who)
	}
}

// awaitLate keeps a call's slot, which give releases, until SPDK answers it after all, or for a long
// while, and tells Config.Late how it ended.
func (c *Conn) awaitLate(pending spdkrpc.Pending, give func(), who, method string, params map[string]any, started time.Time) {
	defer give()
	ctx, cancel := context.WithTimeout(context.Background(), c.target.config.LateAfter)
	defer cancel()
	err := pending.Wait(ctx, nil)
	if late := c.target.config.Late; late != nil {
		late(method, params, err)
	}
	c.target.config.Log.Warn("late reply", "user", who, "method", method, "latency_ms", time.Since(started).Milliseconds(), "error", err)
}
