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

// A Conn is a connection to a target with a known release. A call translated for that release must
// be sent only on this connection. If the target is replaced, the connection closes, and the new
// target gets a different Conn.
type Conn struct {
	target   *Target
	socket   *spdkrpc.Socket
	gone     <-chan struct{}
	release  rpcschema.Release
	examined askedExamination

	// load and byUser count the calls that were sent on this connection, or that wait for a slot to
	// be sent. Both are guarded by Target.mu.
	load   int
	loadOf map[string]int
}

// dial creates a connection for calls.
func (t *Target) dial() (*Conn, *DownError) {
	ctx, cancel := context.WithTimeout(context.Background(), t.connectWait)
	defer cancel()
	socket, gone, release, err := t.open(ctx)
	if err != nil {
		return nil, &DownError{Socket: t.config.Socket, Err: err}
	}
	go t.logWhenGone(gone)
	return &Conn{target: t, socket: socket, gone: gone, release: release, examined: askedExamination{asking: make(chan struct{}, 1)}, loadOf: map[string]int{}}, nil
}

// open connects to the socket, checks which user is listening there, and reads the release.
func (t *Target) open(ctx context.Context) (*spdkrpc.Socket, <-chan struct{}, rpcschema.Release, error) {
	// the socket's callers set their own timeouts
	socket := spdkrpc.NewSocket(t.config.Socket, spdkrpc.WithPeerCheck(t.checkPeer), spdkrpc.WithOneConnection(), spdkrpc.WithTimeout(0))
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
		return fail(fmt.Errorf("cannot read its response to %s: %w", versionMethod, err))
	}
	gone, connected := socket.Connected()
	if !connected {
		return fail(errors.New("it closed the connection"))
	}
	limits := jsonrpc.LimitsBeforeV2605
	if release.Has(rpcschema.AcceptsLargeRequests) {
		limits = jsonrpc.LimitsV2605
	}
	socket.SetLimits(limits)
	return socket, gone, release, nil
}

// logWhenGone logs the end of a connection, unless the proxy itself closed it.
func (t *Target) logWhenGone(gone <-chan struct{}) {
	<-gone
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.config.Log.Debug("target closed a connection", "socket", t.config.Socket)
	}
}

// Release returns the release of the target at the other end.
func (c *Conn) Release() rpcschema.Release { return c.release }

func (c *Conn) broken() bool { return broken(c.gone) }

// Call waits until the user has a slot, sends a call for the user, and waits up to deadline for its
// response. ctx ends only the wait for a slot: SPDK executes a call that was sent even if the
// client has disconnected, and the log must record the outcome. If params is nil, the call is sent
// without parameters. The proxy's own calls have the user "".
//
// If SPDK does not respond by the deadline, the call keeps its slot until SPDK responds, but no
// longer than Config.LateAfter.
func (c *Conn) Call(ctx context.Context, who, method string, params map[string]any, deadline time.Duration) (json.RawMessage, error) {
	return c.CallObserved(ctx, who, method, params, deadline, Observer{})
}

// An Observer observes a call's progress. Its functions may be nil.
type Observer struct {
	// Gone is called once the call has a slot. It reports whether the client has disconnected; if
	// so, the call is not sent.
	Gone func() bool
	// Sent is called when the call has been sent. SPDK starts a user's calls in the order in which
	// they are sent.
	Sent func()
	// Answered is called when SPDK's response has arrived, before the call continues. It must not
	// block.
	Answered func()
	// Settled is called when SPDK has responded to the call, or when it is certain that SPDK will
	// not respond, because the call was not sent or its connection has closed. SPDK may respond
	// long after the call's deadline.
	Settled func()
}

// CallObserved is like Call, but with an Observer.
func (c *Conn) CallObserved(ctx context.Context, who, method string, params map[string]any, deadline time.Duration, o Observer) (json.RawMessage, error) {
	c.addLoad(who, 1)
	defer c.addLoad(who, -1)
	settled := o.Settled
	if settled == nil {
		settled = func() {}
	}
	late := false
	defer func() {
		if !late {
			settled()
		}
	}()
	answer := c.target.sizes.find(method, params)
	slot, err := c.target.queue.acquire(ctx, who, answer, c.target.config.QueueWait)
	if err != nil {
		return nil, err
	}
	// All users share the lock for listings, so a call waits for one of its user's slots before it
	// waits for that lock.
	leave, err := c.target.listing.enter(ctx, c.release, method, c.target.config.QueueWait)
	if err != nil {
		c.target.queue.release(slot)
		return nil, err
	}
	release := func() {
		c.target.queue.release(slot)
		leave()
	}
	if c.broken() {
		release()
		return nil, &DownError{Socket: c.target.config.Socket, Err: errors.New("the target closed the connection")}
	}
	if o.Gone != nil && o.Gone() {
		release()
		return nil, ErrAbandoned
	}
	var argument any // a nil map would be sent as null
	if params != nil {
		argument = params
	}
	pending, err := c.socket.StartObserved(ctx, method, argument, o.Answered)
	if err != nil {
		release()
		return nil, err
	}
	if o.Sent != nil {
		o.Sent()
	}
	started := time.Now()
	bounded, cancel := context.WithDeadline(context.WithoutCancel(ctx), started.Add(deadline))
	defer cancel()
	var result json.RawMessage
	err = pending.Wait(bounded, &result)
	if errors.Is(err, context.DeadlineExceeded) {
		late = true
		go func() {
			defer settled()
			err := c.awaitLate(pending, release, who, method, params, started)
			if errors.Is(err, context.DeadlineExceeded) { // SPDK may respond after Config.LateAfter
				_ = pending.Wait(context.Background(), nil)
			}
		}()
		return nil, err
	}
	answer.note(len(result))
	release()
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

// After a call's deadline has passed, awaitLate waits up to Config.LateAfter for the response. It
// then releases the call's slot, passes the outcome to Config.Late, and returns it.
func (c *Conn) awaitLate(pending spdkrpc.Pending, release func(), who, method string, params map[string]any, started time.Time) error {
	defer release()
	ctx, cancel := context.WithTimeout(context.Background(), c.target.config.LateAfter)
	defer cancel()
	err := pending.Wait(ctx, nil)
	if late := c.target.config.Late; late != nil {
		late(method, params, err)
	}
	c.target.config.Log.Warn("late reply", "user", who, "method", method, "latency_ms", time.Since(started).Milliseconds(), "error", err)
	return err
}
