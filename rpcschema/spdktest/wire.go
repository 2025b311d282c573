package spdktest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// maxConns is the value of SPDK_JSONRPC_MAX_CONNS. Further connections wait to be accepted.
const maxConns = 64

// limitsOf returns the limits on a request. If a request exceeds them, the target closes the
// connection.
func limitsOf(r rpcschema.Release) jsonrpc.Limits {
	if r.Before(rpcschema.MustRelease("v26.05")) {
		return jsonrpc.LimitsBeforeV2605
	}
	return jsonrpc.LimitsV2605
}

// A server is the RPC socket of a running target.
type server struct {
	target   *Target
	engine   *engine
	limits   jsonrpc.Limits
	listener *net.UnixListener
	lock     *os.File
	slots    chan struct{}
	poll     *pollClock // nil means that the target responds immediately
	down     chan struct{}
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[*conn]struct{} // nil once closed
}

// listen opens the socket as SPDK does, with a lock file that shows whether the socket is in use.
// If a crash left the socket behind, listen replaces it.
func listen(t *Target, e *engine) (*server, error) {
	path := t.opts.Socket
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s is in use: use a different one: %w", path, err), lock.Close())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, lock.Close())
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	listener.SetUnlinkOnClose(false)
	s := &server{
		target: t, engine: e, limits: limitsOf(t.opts.Release), listener: listener, lock: lock,
		slots: make(chan struct{}, maxConns), down: make(chan struct{}), conns: map[*conn]struct{}{},
	}
	if t.opts.Poll > 0 {
		s.poll = newPollClock()
	}
	return s, nil
}

func (s *server) serve() {
	if s.poll != nil {
		s.running.Go(func() { s.poll.run(s.target.opts.Poll, s.down) })
	}
	s.running.Go(s.accept)
}

// accept accepts one connection at each poll, unless all slots are in use.
func (s *server) accept() {
	for {
		select {
		case s.slots <- struct{}{}:
		case <-s.down:
			return
		}
		uc, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		s.wait()
		c := &conn{server: s, socket: uc, wake: make(chan struct{}, 1)}
		s.mu.Lock()
		up := s.conns != nil
		if up {
			s.conns[c] = struct{}{}
			s.running.Go(c.read)
			s.running.Go(c.write)
		}
		s.mu.Unlock()
		if !up {
			_ = uc.Close()
			return
		}
	}
}

// wait blocks until the target's next poll.
func (s *server) wait() {
	if s.poll != nil {
		s.poll.wait(s.down)
	}
}

func (s *server) close() {
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	close(s.down)
	_ = s.listener.Close()
	for c := range conns {
		c.kill()
	}
	s.running.Wait()
	_ = s.lock.Close()
	_ = os.Remove(s.lock.Name())
}

// A conn is one connection. Responses are sent in order of completion.
type conn struct {
	server *server
	socket *net.UnixConn
	wake   chan struct{} // signals work for the writer

	mu          sync.Mutex
	queue       [][]byte
	outstanding int // calls that have not been completed
	// taking means that received bytes are being parsed. In the meantime, responses are held back,
	// because a parse error drops them.
	taking  bool
	stopped bool // the connection is no longer being read
	dead    bool
}

func (c *conn) read() {
	defer c.hangUp()
	buf := make([]byte, 0, c.server.limits.Bytes)
	for len(buf) < cap(buf) { // if the buffer is full, SPDK mistakes a read of 0 bytes for the end
		n, err := c.socket.Read(buf[len(buf):cap(buf)])
		if n == 0 || err != nil {
			return
		}
		c.server.wait()
		buf = buf[:len(buf)+n]
		c.hold(true)
		taken, err := c.take(buf)
		if err != nil {
			c.kill()
			return
		}
		buf = buf[:copy(buf, buf[taken:])]
		c.hold(false)
		c.stir()
	}
}

// take handles every complete value in buf, and returns the number of bytes that these values
// occupy.
func (c *conn) take(buf []byte) (taken int, err error) {
	for taken < len(buf) {
		t, err := nextText(buf[taken:])
		if errors.Is(err, errIncomplete) {
			break
		}
		if err != nil || t.count > c.server.limits.Values {
			return taken, errUnparsable
		}
		taken += t.length
		c.handle(t.value)
	}
	return taken, nil
}

// expect records that n more calls are in progress.
func (c *conn) expect(n int) {
	c.mu.Lock()
	c.outstanding += n
	c.mu.Unlock()
}

// hold starts or stops holding back responses.
func (c *conn) hold(taking bool) {
	c.mu.Lock()
	c.taking = taking
	c.mu.Unlock()
}

// answer completes one call. If response is nil, the call gets no response. Since v26.05, a call
// that completes after its connection was half-closed gets no response.
func (c *conn) answer(response []byte) {
	c.mu.Lock()
	if response == nil || c.dead || c.stopped && !c.server.engine.before("v26.05") {
		c.outstanding--
	} else {
		c.queue = append(c.queue, response)
	}
	c.mu.Unlock()
}

func (c *conn) stir() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write sends the completed responses at the next poll. It closes the socket when the connection is
// no longer being read and every call has ended.
func (c *conn) write() {
	defer c.remove()
	for {
		select {
		case <-c.wake:
		case <-c.server.down:
			return
		}
		c.server.wait()
		c.mu.Lock()
		if c.taking && !c.dead {
			c.mu.Unlock()
			continue
		}
		queue := c.queue
		c.queue = nil
		over := c.dead || c.stopped && c.outstanding == len(queue)
		c.mu.Unlock()
		buffers := net.Buffers(queue)
		if _, err := buffers.WriteTo(c.socket); err != nil || over {
			return
		}
		c.mu.Lock()
		c.outstanding -= len(queue)
		c.mu.Unlock()
	}
}

// hangUp stops reading from the connection.
func (c *conn) hangUp() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.stir()
}

// kill closes the connection and discards its calls and responses.
func (c *conn) kill() {
	c.mu.Lock()
	c.dead, c.stopped, c.queue = true, true, nil
	c.mu.Unlock()
	_ = c.socket.Close()
	c.stir()
}

// remove frees the connection's slot. Running calls continue but get no response.
func (c *conn) remove() {
	c.kill()
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	<-c.server.slots
}

// A pollClock wakes all waiting goroutines when the target polls its sockets.
type pollClock struct {
	mu   sync.Mutex
	next chan struct{}
}

func newPollClock() *pollClock { return &pollClock{next: make(chan struct{})} }

func (p *pollClock) run(interval time.Duration, down <-chan struct{}) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-down:
			return
		}
		p.mu.Lock()
		close(p.next)
		p.next = make(chan struct{})
		p.mu.Unlock()
	}
}

func (p *pollClock) wait(down <-chan struct{}) {
	p.mu.Lock()
	next := p.next
	p.mu.Unlock()
	select {
	case <-next:
	case <-down:
	}
}
