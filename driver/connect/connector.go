package connect

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	utilexec "k8s.io/utils/exec"
)

// A Device is a block device of this node whose identity was verified.
type Device struct {
	Path      string // such as /dev/nvme0n1
	SizeBytes int64
	// UUID is the namespace's UUID as the kernel reports it; empty where there is none (iSCSI).
	UUID string
}

// A Connector attaches exports to this node. All methods may be called again at any time, and by
// several goroutines.
type Connector interface {
	// Connect attaches the export and waits for its device. It undoes what it did itself when it
	// fails. Without a deadline in ctx it waits for [Options.Timeout].
	Connect(ctx context.Context, e Export) (Device, error)
	// Find returns the device of an export that is attached, or an error of kind [ErrNotConnected].
	Find(ctx context.Context, e Export) (Device, error)
	// Disconnect detaches the export and waits until that is done. It succeeds when nothing is
	// attached. It refuses with [ErrBusy] while the device is mounted or held on this node, and
	// leaves alone a connection that other volumes of the same subsystem use.
	Disconnect(ctx context.Context, e Export) error
	// Rescan makes the kernel look at the size again, and returns it as soon as it is at least
	// wantBytes.
	Rescan(ctx context.Context, e Export, wantBytes int64) (newBytes int64, err error)
}

// Options of [New]. The zero value is usable.
type Options struct {
	// AllowLoop permits exports of simulated targets, which attach files of this node as loop
	// devices. For tests and the demo only.
	AllowLoop bool
	// Timeout bounds a call whose context has no deadline; 60 s when zero.
	Timeout time.Duration
	NVMe    NVMeOptions
	// Root is prefixed to /sys and /dev, so that a test can supply its own tree.
	Root string
	// Exec runs iscsiadm and modprobe; the real thing when nil.
	Exec utilexec.Interface
	// Log is slog.Default() when nil.
	Log *slog.Logger
}

// New returns the connector of one node: it serves every transport, as the one host.
func New(host Host, o Options) (Connector, error) {
	if host.UUID == "" || host.NQN == "" || host.IQN == "" {
		return nil, fmt.Errorf("connect: incomplete host identity %+v: derive it with HostOf(node id)", host)
	}
	if err := o.NVMe.validate(); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Exec == nil {
		o.Exec = utilexec.New()
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return newByTransport(host, o), nil
}

const defaultTimeout = time.Minute
