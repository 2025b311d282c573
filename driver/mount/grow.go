package mount

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/mkfs"
	"github.com/spdkgate/spdkgate/driver/operation"
)

// Grow grows the mounted file system at path to the size of its device, and returns its new size in
// bytes. It changes nothing if the file system already has that size.
func (m *Mounter) Grow(ctx context.Context, path string) (sizeBytes int64, err error) {
	target, err := canonical(path)
	if err == nil {
		sizeBytes, err = operation.Run(ctx, &m.operations, []string{"grow " + target}, func(ctx context.Context, step *operation.Step) (int64, error) {
			return m.growMounted(ctx, target, step)
		})
	}
	if err != nil {
		return 0, fmt.Errorf("grow the file system at %s: %w", path, err)
	}
	return sizeBytes, nil
}

func (m *Mounter) growMounted(ctx context.Context, path string, step *operation.Step) (int64, error) {
	p, err := m.at(path)
	if err != nil {
		return 0, err
	}
	switch {
	case p.Stale:
		return 0, fmt.Errorf("%w: the device was removed: stage the volume again", ErrNotMounted)
	case !supported(p.FSType):
		return 0, fmt.Errorf("%w: file system of type %q cannot be grown: only %s can", ErrInvalid, p.FSType, strings.Join(mkfs.Types, ", "))
	case p.ReadOnly:
		return 0, fmt.Errorf("%w: %s is mounted read-only, and cannot be grown", ErrConflict, path)
	}
	step.Doing("comparing the sizes of %s and its file system", p.Device)
	want, err := deviceSize(p.Device)
	if err != nil {
		return 0, err
	}
	have, err := p.filesystemSize()
	if err != nil {
		return 0, err
	}
	const block = 4096 // file systems cannot use a partial block
	if want-have < block {
		return have, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := m.canGrow(p.FSType); err != nil {
		return 0, fmt.Errorf("%w: %w", errNotGrown, err)
	}
	tool, args := "resize2fs", []string{p.Device}
	switch p.FSType {
	case xfs:
		tool, args = "xfs_growfs", []string{"-d", path}
	case btrfs:
		tool, args = "btrfs", []string{"filesystem", "resize", "max", path}
	}
	step.Doing("%s %s", tool, p.Device)
	out, code, err := m.runTool(tool, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s %s: exit code %d: %s", tool, args[len(args)-1], code, out)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNotGrown, err)
	}
	size, err := p.filesystemSize()
	if err == nil && size != have {
		m.log.Info("file system grown", "device", p.Device, "path", path, "from", have, "to", size)
	}
	return size, err
}

// errNotGrown means that a file system could not be grown, but is still usable.
var errNotGrown = errors.New("the file system keeps its size")

// growUnmounted grows an unmounted ext4 file system to the size of its device if this process will
// not be permitted to grow it after mounting. It only logs a failure, because the file system can
// be mounted with its current size.
func (m *Mounter) growUnmounted(device string, step *operation.Step) {
	if m.canGrow(ext4) == nil {
		return // grow the file system online, without the complete check that resize2fs requires offline
	}
	have, err := ext4Size(device)
	var want int64
	if err == nil {
		want, err = deviceSize(device)
	}
	if err == nil && want-have < 4096 {
		return
	}
	if err == nil {
		step.Doing("e2fsck -f %s", device)
		err = m.fsck(device, "-f")
	}
	if err == nil {
		step.Doing("resize2fs %s", device)
		var out string
		var code int
		if out, code, err = m.runTool("resize2fs", device); err == nil && code != 0 {
			err = fmt.Errorf("resize2fs %s: exit code %d: %s", device, code, out)
		}
	}
	if err != nil {
		m.log.Warn("file system not grown before it was mounted", "device", device, "from", have, "to", want, "error", err)
		return
	}
	m.log.Info("file system grown before it was mounted", "device", device, "from", have, "to", want)
}

// CanGrow fails if this process is not permitted to grow mounted file systems of a type. For ext4,
// the kernel requires CAP_SYS_RESOURCE, which a privileged container has only if the container
// runtime itself has it.
func CanGrow(fsType string) error {
	if fsType == xfs {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read this process's capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return fmt.Errorf("%w: growing a mounted ext4 needs the capability CAP_SYS_RESOURCE, which the node plugin does not have (a privileged container lacks it if the container runtime does): "+
			"delete the pods that use the volume on this node, and the file system grows before it is mounted the next time; or use xfs", ErrUnsupported)
	}
	return nil
}

func (p Point) filesystemSize() (int64, error) {
	switch p.FSType {
	case xfs:
		return xfsSize(p.Path)
	case btrfs:
		return btrfsSize(p.Path)
	}
	return ext4Size(p.Device)
}

// xfsSize reads the size of a mounted xfs file system from the kernel, because the superblock on
// the device may be outdated.
func xfsSize(path string) (int64, error) {
	// struct xfs_fsop_geom_v1 of xfs_fs.h, and the ioctl XFS_IOC_FSGEOMETRY_V1, _IOR('X', 100, …).
	type geometry struct {
		blockSize, _, _, _, _, _, _, _ uint32
		dataBlocks                     uint64
		_                              [72]byte
	}
	var g geometry
	const xfsGeometry = 2<<30 | unsafe.Sizeof(g)<<16 | 'X'<<8 | 100
	dir, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), xfsGeometry, uintptr(unsafe.Pointer(&g))); errno != 0 {
		return 0, fmt.Errorf("read the geometry of the xfs at %s: %w", path, errno)
	}
	return int64(g.dataBlocks) * int64(g.blockSize), nil
}

// ext4Size reads the size from the superblock at byte 1024. Offsets in the superblock: magic 56,
// block count 4 and (high half) 336, logarithm of the block size minus 10 at 24.
func ext4Size(device string) (int64, error) {
	d, err := os.Open(device)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	sb := make([]byte, 1024)
	if _, err := d.ReadAt(sb, 1024); err != nil {
		return 0, fmt.Errorf("read the superblock of %s: %w", device, err)
	}
	if binary.LittleEndian.Uint16(sb[56:]) != 0xef53 {
		return 0, fmt.Errorf("%w: %s has no ext4 superblock", ErrDamaged, device)
	}
	const feature64Bit = 0x80
	blocks := int64(binary.LittleEndian.Uint32(sb[4:]))
	if binary.LittleEndian.Uint32(sb[96:])&feature64Bit != 0 {
		blocks |= int64(binary.LittleEndian.Uint32(sb[336:])) << 32
	}
	return blocks << (10 + binary.LittleEndian.Uint32(sb[24:])), nil
}
