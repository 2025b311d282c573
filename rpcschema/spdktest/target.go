package spdktest

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// Options configures the simulated target. The zero value selects the newest release, a socket in a
// temporary directory, and no data on disk.
type Options struct {
	// Socket is the UNIX socket's path; if empty, a socket is created in a temporary directory.
	Socket string
	// DataDir is a directory for lvstores and logical volumes (as sparse files), so that they
	// survive this process. If it is empty, everything is kept in memory.
	DataDir string
	// Release is the SPDK release to simulate; the default is v26.05.
	Release rpcschema.Release
	// Poll is the interval at which the target polls its sockets. If it is 0, the target reads
	// requests immediately. A real target polls every 4 ms.
	Poll time.Duration
	// WaitForRPC starts the target in the startup state, as spdk_tgt --wait-for-rpc does.
	WaitForRPC bool
	// ExamineListed starts the target with bdev_auto_examine disabled, as after bdev_set_options in
	// the startup state.
	ExamineListed bool
	// ConfigFile is a saved configuration that is loaded at each start, as with spdk_tgt -c. With
	// IgnoreInitErrors, the start continues if one of the calls in it fails.
	ConfigFile       string
	IgnoreInitErrors bool
	// Work is how long SPDK works on a volume's blob for a snapshot, clone, inflation, decoupling,
	// resize or deletion. If it is 0, such calls never overlap.
	Work time.Duration
	// WriteMetadata writes an lvstore's metadata, in SPDK's format, to the file that contains the
	// lvstore. The target calls it before it responds to a call that changes snapshots.
	// WriteMetadata must not change the bytes at MarkOffset and after it. If it is nil, the file
	// contains no metadata. WriteMetadata requires a DataDir.
	WriteMetadata func(StoreMetadata) error
	// Faults are injected before the target listens.
	Faults []Fault
	// Logger receives one line per call, at debug level; it may be nil.
	Logger *slog.Logger
}

// Newest is the default release of a Target.
var Newest = rpcschema.MustRelease("v26.05")

// A Target is a simulated spdk_tgt. It is safe for concurrent use.
type Target struct {
	opts    Options
	tempDir string // created for the socket; removed by Close
	methods *methodTable
	journal journal
	faults  faults
	media   *media // state that survives a crash
	dir     *dataDir

	mu     sync.Mutex // locked while the target starts or stops
	engine *engine    // nil while the target is down
	server *server
	closed bool
}

// Start creates a target that listens on its socket.
func Start(opts Options) (*Target, error) {
	t := &Target{opts: opts, media: newMedia()}
	if !t.opts.Release.Known() {
		t.opts.Release = Newest
	}
	t.opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	t.methods = newMethodTable(rpcschema.Default(), t.opts.Release)
	if t.opts.Socket == "" {
		dir, err := os.MkdirTemp("", "spdktest-")
		if err != nil {
			return nil, fmt.Errorf("start simulated target: %w", err)
		}
		t.tempDir, t.opts.Socket = dir, filepath.Join(dir, "spdk.sock")
	}
	for _, f := range opts.Faults {
		t.Inject(f)
	}
	if err := t.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("start simulated target: %w", err), t.release())
	}
	return t, nil
}

// open reads the data directory and starts the target.
func (t *Target) open() (err error) {
	if t.opts.DataDir != "" {
		if t.dir, err = openDataDir(t.opts.DataDir); err != nil {
			return err
		}
		if err := t.dir.load(t.media); err != nil {
			return err
		}
	}
	return t.Restart()
}

// Socket returns the path of the UNIX socket.
func (t *Target) Socket() string { return t.opts.Socket }

// Release returns the SPDK release of the target.
func (t *Target) Release() rpcschema.Release { return t.opts.Release }

// Crash ends the target as SIGKILL does. It closes every connection, and everything that SPDK keeps
// in memory is lost. Volumes remain on their media. As after a real crash, the socket's file also
// remains, but refuses connections.
func (t *Target) Crash() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down()
}

// Down returns a channel that is closed when the running target goes down because of a crash,
// Restart or Close. If the target is already down, the channel is already closed.
func (t *Target) Down() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.server == nil {
		down := make(chan struct{})
		close(down)
		return down
	}
	return t.server.down
}

// crash ends the target from within a call if the server s is still running.
func (t *Target) crash(s *server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.server == s {
		t.down()
	}
}

func (t *Target) down() {
	if t.server == nil {
		return
	}
	t.engine.kill()
	t.server.close()
	t.engine, t.server = nil, nil
}

// Restart starts the target again. It first crashes the target if it is running.
func (t *Target) Restart() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errors.New("the target is closed: start a new one")
	}
	t.down()
	if err := t.media.loseMemory(t.dir); err != nil {
		return fmt.Errorf("discard the lvstores in memory: %w", err)
	}
	if t.dir != nil {
		if err := t.dir.resetExports(); err != nil {
			return fmt.Errorf("remove the exports: %w", err)
		}
	}
	e := newEngine(t)
	if err := t.loadConfig(e); err != nil {
		e.kill()
		return err
	}
	s, err := listen(t, e)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	t.engine, t.server = e, s
	s.serve()
	return nil
}

// Close ends the target and removes its socket. It leaves the data directory in place, but removes
// its exports. Further calls of Close have no effect.
func (t *Target) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	t.down()
	err := ignoreMissing(os.Remove(t.opts.Socket))
	if t.dir != nil {
		err = errors.Join(err, t.dir.resetExports())
	}
	return errors.Join(err, t.release())
}

// release releases the target's resources, whether it is up or down.
func (t *Target) release() error {
	var errs []error
	if t.dir != nil {
		errs = append(errs, t.dir.close())
	}
	if t.tempDir != "" {
		errs = append(errs, os.RemoveAll(t.tempDir))
	}
	return errors.Join(errs...)
}
