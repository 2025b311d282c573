package mount

import (
	"context"
	"log/slog"

	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// Options are the options of [New]. The zero value is usable.
type Options struct {
	// Exec runs blkid, mkfs, e2fsck, resize2fs and xfs_growfs. Nil runs the real programs.
	Exec utilexec.Interface
	// Mount runs mount(8). Nil runs the real mount program.
	Mount mountutils.Interface
	// MountInfo is the file that lists the mounts. Empty means /proc/self/mountinfo.
	MountInfo string
	// Log is the logger. Nil means slog.Default().
	Log *slog.Logger
}

// A Mounter formats, mounts and grows file systems on block devices. It is safe for concurrent use.
type Mounter struct {
	exec      utilexec.Interface
	mount     mountutils.Interface
	umount    func(path string) error
	detach    func(path string) error
	canGrow   func(fsType string) error // normally [CanGrow]
	mountInfo string
	sysBlock  string // sysfs directory of block devices by number
	dev       string
	log       *slog.Logger
	// operations runs operations on device numbers and paths.
	operations operation.Group
}

// New returns a Mounter for this node.
func New(o Options) *Mounter {
	m := &Mounter{exec: o.Exec, mount: o.Mount, umount: umount, detach: detach, canGrow: CanGrow, mountInfo: o.MountInfo, sysBlock: "/sys/dev/block", dev: "/dev", log: o.Log, operations: operation.Group{Busy: ErrBusy}}
	if m.exec == nil {
		m.exec = utilexec.New()
	}
	if m.mount == nil {
		// Do not use systemd-run, because only file systems with daemons need it, and ext4, xfs and
		// btrfs have none.
		m.mount = mountutils.NewWithoutSystemd("")
	}
	if m.mountInfo == "" {
		m.mountInfo = "/proc/self/mountinfo"
	}
	if m.log == nil {
		m.log = slog.Default()
	}
	return m
}

// A Stage describes how to mount a device.
type Stage struct {
	Device string // block device, such as /dev/nvme0n1
	Path   string // directory; created if missing
	// FSType is ext4, xfs or btrfs. Empty means the existing type, or ext4 for an empty device.
	FSType string
	// MkfsOptions contains options for creating a file system; see package mkfs.
	MkfsOptions string
	// UUID is the UUID for the file system. It replaces an existing UUID, such as the source's UUID
	// on a copied volume. If UUID is empty, the file system's UUID remains unchanged.
	UUID     string
	Flags    []string // mount options of mount(8)
	ReadOnly bool
	// Shared means that other nodes may mount the device at the same time, possibly read-only. A
	// shared device is never written to, so its file system is not mounted if its journal must be
	// replayed.
	Shared bool
	// MayFormat permits creating a file system if the device is empty. It must be false for volumes
	// that may contain data: clones, restored volumes, and volumes that were formatted before.
	MayFormat bool
	// MayFinish permits creating a file system if an earlier mkfs by this package was interrupted
	// and the unfinished file system was never mounted.
	MayFinish bool
	// Unused means that no data has been stored on the device yet, and that its contents are
	// random, as on a newly encrypted device. Unless such a device has a complete file system,
	// FormatAndMount assumes that mkfs was interrupted.
	Unused bool
	// Ready, if not nil, is called after the file system on the device is complete and before it is
	// mounted.
	Ready func(context.Context) error
}

// A Point describes a mount at a path.
type Point struct {
	Path     string
	Device   string // block device, such as /dev/nvme0n1; empty if there is none or the device was removed
	FSType   string // empty for a raw block volume
	ReadOnly bool
	Block    bool // the path contains a raw block device
	// Stale means that the device has been removed, so every access fails until the volume is
	// mounted again.
	Stale bool

	number    string   // device number, major:minor
	root      string   // the mounted path within the file system
	options   []string // options of the mount
	superOpts []string // options of the file system
}

// Stats contains the size and usage of a mounted file system.
type Stats struct {
	TotalBytes, AvailableBytes, UsedBytes int64
	TotalInodes, FreeInodes, UsedInodes   int64
}
