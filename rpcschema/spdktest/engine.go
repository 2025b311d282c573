package spdktest

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An engine holds the state that a running spdk_tgt keeps in memory. Handlers run one at a time, as
// on SPDK's only RPC thread. The exception is a handler that is copying data: other handlers can
// run in the meantime.
type engine struct {
	target  *Target
	release rpcschema.Release
	media   *media
	dir     *dataDir // nil if volumes have no data

	mu      sync.Mutex
	dead    bool
	started bool          // the target has left the startup state
	ready   chan struct{} // closed when started
	gone    chan struct{} // closed when dead
	bdevs   registry
	stores  []*lvstore // in the order of discovery
	bdevMod bdevModules
	// If examineListed is set (bdev_auto_examine is off), SPDK examines only the bdevs in
	// toExamine.
	examineListed bool
	toExamine     []string
	keys          []*key
	cryptoKeys    []*cryptoKey
	copies        []*shallowCopy // by number; nil if no longer recorded
	nvmf          nvmfTarget
	iscsi         iscsiTarget
	stale         []func() error // functions that rewrite outdated export layouts
	startTicks    uint64
	retries       uint64 // failed allocations from the pool of small buffers
	notes         []spdkrpc.NotifyEvent
	noted         uint64
}

func newEngine(t *Target) *engine {
	e := &engine{target: t, release: t.opts.Release, media: t.media, dir: t.dir, ready: make(chan struct{}), gone: make(chan struct{})}
	e.startTicks = ticks()
	e.bdevs.init()
	e.examineListed = t.opts.ExamineListed
	e.bdevs.notify = e.notify
	e.bdevs.removed = func(b *bdev) {
		e.toExamine = slices.DeleteFunc(e.toExamine, func(name string) bool { return name == b.name || slices.Contains(b.aliases, name) })
	}
	e.nvmf.init()
	e.iscsi.init()
	if !t.opts.WaitForRPC {
		e.start()
	}
	return e
}

func (e *engine) start() {
	e.started = true
	close(e.ready)
}

// kill stops the execution of all handlers.
func (e *engine) kill() {
	e.mu.Lock()
	e.dead = true
	close(e.gone)
	e.mu.Unlock()
}

func (e *engine) state() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started {
		return "runtime"
	}
	return "startup"
}

// do runs one handler.
func (e *engine) do(run func() (any, error)) (any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead {
		return nil, errDead
	}
	result, err := run()
	return result, errors.Join(err, e.refreshExports()) // nil if neither one failed
}

// unlocked lets other handlers run while io runs. The caller must mark the object of the I/O as
// busy until io returns.
func (e *engine) unlocked(io func() error) error {
	e.mu.Unlock()
	err := io()
	e.mu.Lock()
	if e.dead {
		return errDead
	}
	return err
}

// errDead ends calls that were interrupted by a crash. No client receives it.
var errDead = jsonrpc.Errorf(jsonrpc.CodeInternalError, "the target crashed")

// A handler returns errCrash where a real target crashes, and errSilent where a real target never
// responds.
var (
	errCrash  = errors.New("SPDK crashes here")
	errSilent = errors.New("SPDK never responds here")
)

// before reports whether the target's release is older than the given one.
func (e *engine) before(release string) bool {
	return e.release.Before(rpcschema.MustRelease(release))
}

// errno returns the error that SPDK returns as -errno.
func errno(n syscall.Errno) error { return jsonrpc.Errorf(-int(n), "%s", strerror(n)) }

// invalid and internal return errors with a JSON-RPC code and an errno's text, as SPDK does.
func invalid(n syscall.Errno) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "%s", strerror(n))
}

func internal(n syscall.Errno) error {
	return jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s", strerror(n))
}

var (
	errInvalidParams = jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid parameters")
	errInternal      = jsonrpc.Errorf(jsonrpc.CodeInternalError, "Internal error")
)

// strerror returns the text of spdk_strerror. That is the C library's text, which begins with a
// capital letter.
func strerror(n syscall.Errno) string {
	text := n.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

// value returns *p, or the zero value if p is nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
