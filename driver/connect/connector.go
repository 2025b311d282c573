package connect

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	utilexec "k8s.io/utils/exec"
)

// A Device is a block device on this node whose identity has been verified.
type Device struct {
	Path      string // such as /dev/nvme0n1
	SizeBytes int64
	// UUID is the namespace's UUID as the kernel reports it. It is empty if the kernel reports no
	// UUID, as with iSCSI.
	UUID string
}

// A Connector attaches exports to this node. All calls can be repeated at any time, and all methods
// are safe for concurrent use.
type Connector interface {
	// Connect attaches the export and waits for its device. If Connect fails, it undoes its own
	// steps. If ctx has no deadline, Connect waits at most [Options.Timeout].
	Connect(ctx context.Context, e Export) (Device, error)
	// Find returns the device of an attached export. It fails with [ErrNotConnected] if the export
	// is not attached.
	Find(ctx context.Context, e Export) (Device, error)
	// Disconnect detaches the export and waits until it is detached. It succeeds if nothing is
	// attached. It fails with [ErrBusy] while the device is mounted or otherwise in use on this
	// node. Disconnect keeps a connection that is used by other volumes of the same subsystem.
	Disconnect(ctx context.Context, e Export) error
	// Rescan makes the kernel read the device's size again, and returns the size when it is at
	// least wantBytes.
	Rescan(ctx context.Context, e Export, wantBytes int64) (newBytes int64, err error)
}

// Options are the options of [New]. The zero value is usable.
type Options struct {
	// AllowLoop permits exports of simulated targets, which attach files on this node as loop
	// devices. It is for tests and the demo only.
	AllowLoop bool
	// Timeout limits a call whose context has no deadline. Zero means 60 s.
	Timeout time.Duration
	NVMe    NVMeOptions
	// Root is a prefix to /sys, /dev and /proc, for tests.
	Root string
	// Exec runs iscsiadm and modprobe. Nil runs the real programs.
	Exec utilexec.Interface
	// Log is the logger. Nil means slog.Default().
	Log *slog.Logger
}

// New returns a connector for all transports. The node connects as host.
func New(host Host, o Options) (Watcher, error) {
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
