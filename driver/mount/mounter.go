package mount

import (
	"log/slog"

	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// Options of [New]. The zero value is usable.
type Options struct {
	// Exec runs blkid, mkfs, e2fsck, resize2fs and xfs_growfs; the real thing when nil.
	Exec utilexec.Interface
	// Mount runs mount(8); the real thing when nil.
	Mount mountutils.Interface
	// MountInfo is the file that lists the mounts; /proc/self/mountinfo when empty.
	MountInfo string
	// Log is slog.Default() when nil.
	Log *slog.Logger
}

// Mounter does everything between block device and path.
type Mounter struct {
	exec      utilexec.Interface
	mount     mountutils.Interface
	umount    func(path string) error
	mountInfo string
	sysBlock  string // devices by number
	dev       string
	log       *slog.Logger
	// operations are those on device numbers and paths.
	operations operation.Group
}

// New returns a Mounter for this node.
func New(o Options) *Mounter {
	m := &Mounter{exec: o.Exec, mount: o.Mount, umount: umount, mountInfo: o.MountInfo, sysBlock: "/sys/dev/block", dev: "/dev", log: o.Log, operations: operation.Group{Busy: ErrBusy}}
	if m.exec == nil {
		m.exec = utilexec.New()
	}
	if m.mount == nil {
		// systemd-run is for file systems with daemons of their own, which ext4 and xfs have not.
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

// Stage says how a device is to be mounted.
type Stage struct {
	Device string // block device, such as /dev/nvme0n1
	Path   string // directory; made if missing
	// FSType is ext4 or xfs. Empty: whichever of them the device holds, ext4 for an empty device.
	FSType   string
	Flags    []string // mount options, as mount(8) takes them
	ReadOnly bool
	// MayFormat permits a file system to be made, should the device be empty. False for whatever
	// holds, or may hold, data by its history: clones, restores, volumes that were formatted before.
	MayFormat bool
	// MayFinish permits it only where an earlier mkfs of this package was cut off: what it left was
	// never mounted, however much was written.
	MayFinish bool
}

// A Point is what is mounted at a path.
type Point struct {
	Path     string
	Device   string // block device below it, such as /dev/nvme0n1; empty if it has none, or it is gone
	FSType   string // empty for a raw block volume
	ReadOnly bool
	Block    bool // the path is a raw block device
	// Stale: the device below was removed. All access fails; unmount it and mount it again.
	Stale bool

	number    string   // device number, major:minor
	root      string   // what of the file system is mounted
	options   []string // of the mount
	superOpts []string // of the file system
}

// Stats of a mounted file system.
type Stats struct {
	TotalBytes, AvailableBytes, UsedBytes int64
	TotalInodes, FreeInodes, UsedInodes   int64
}
