package mount

import "context"

// Mounter does everything between block device and path.
type Mounter struct{}

// New returns a Mounter for this node.
func New(o Options) *Mounter { return &Mounter{} }

// FormatAndMount mounts a device at its staging path, makes a file system first if the device is
// empty and may be formatted, checks ext4, and grows the file system to the device's size. It
// succeeds when that device is mounted there already; replaces a stale mount.
func (m *Mounter) FormatAndMount(ctx context.Context, s Stage) error { return ErrUnsupported }

// Bind mounts a staged file system at a second path, which it makes (a directory) if missing. Of
// flags, those that concern the mount and not the file system are applied (nosuid, noexec, …).
func (m *Mounter) Bind(ctx context.Context, source, target string, readOnly bool, flags []string) error {
	return ErrUnsupported
}

// BindDevice mounts a block device's node over a file, which it makes if missing: a raw block volume.
func (m *Mounter) BindDevice(ctx context.Context, device, target string, readOnly bool) error {
	return ErrUnsupported
}

// Unmount unmounts path. It succeeds when nothing is mounted there.
func (m *Mounter) Unmount(ctx context.Context, path string) error { return ErrUnsupported }

// UnmountAndRemove unmounts path and removes it, if it is an empty directory or file.
func (m *Mounter) UnmountAndRemove(ctx context.Context, path string) error { return ErrUnsupported }

// At tells what is mounted at path; an error of kind [ErrNotMounted] if nothing is.
func (m *Mounter) At(path string) (Point, error) { return Point{}, ErrUnsupported }

// Grow makes the file system mounted at path as large as its device, online, and returns its size.
func (m *Mounter) Grow(ctx context.Context, path string) (sizeBytes int64, err error) {
	return 0, ErrUnsupported
}

// Stats counts bytes and inodes of the file system mounted at path.
func (m *Mounter) Stats(ctx context.Context, path string) (Stats, error) {
	return Stats{}, ErrUnsupported
}

// DeviceSize is the size of the raw block volume mounted at path, or of a block device itself.
func (m *Mounter) DeviceSize(ctx context.Context, path string) (int64, error) {
	return 0, ErrUnsupported
}
