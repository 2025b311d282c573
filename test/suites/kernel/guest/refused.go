package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/request"
)

// A refusedDevice is a volume that NodeStageVolume must not use.
type refusedDevice struct {
	name string
	// prepare changes the volume, its file on the target, or its context.
	prepare func(ctx context.Context, v *csiVolume) error
	code    codes.Code
	text    string
	// repaired means that the driver may have repaired a part of the device before refusing it.
	repaired bool
}

const refusedSize = 8 * mib

var refusedDevices = []refusedDevice{
	{"wrong UUID behind the right NQN", func(_ context.Context, v *csiVolume) error {
		v.context[connect.KeyNSUUID] = uuid.NewString()
		return nil
	}, codes.FailedPrecondition, "no namespace", false},
	{"unknown data", overwrite(3*mib+777, "records of a database"), codes.FailedPrecondition, "data at offset", false},
	{"unknown data at the end", overwrite(refusedSize-5000, "records of a database"), codes.FailedPrecondition, "data at offset", false},
	{"a partition table", overwrite(440, "\x01\x02\x03\x04\x00\x00\x80\x00\x02\x00\x83\x00\x10\x00\x01\x00\x00\x00\xff\x0f\x00\x00"+strings.Repeat("\x00", 48)+"\x55\xaa"),
		codes.FailedPrecondition, "partition table", false},
	{"a LUKS header", overwrite(0, "LUKS\xba\xbe\x00\x02\x00\x00\x00\x00\x00\x00\x40\x00"), codes.FailedPrecondition, "device holds other data", false},
	{"another file system", func(_ context.Context, v *csiVolume) error {
		v.fsType = "xfs"
		_, err := run("mke2fs", "-q", "-F", "-t", "ext4", v.backing())
		return err
	}, codes.FailedPrecondition, "device holds another file system: ext4", false},
	{"an empty copy of a volume", func(_ context.Context, v *csiVolume) error {
		v.context[request.KeyMayFormat] = "false"
		return nil
	}, codes.FailedPrecondition, "device is empty", false},
	{"size 0", func(ctx context.Context, v *csiVolume) error { return v.target.resize(ctx, v.name, 0) }, codes.FailedPrecondition, "no namespace", false},
	{"write-protected", func(ctx context.Context, v *csiVolume) error { return v.writeProtect(ctx) }, codes.AlreadyExists, "write-protected", false},
	{"unreadable in one place", func(ctx context.Context, v *csiVolume) error { return v.unreadable(ctx, 2*mib) }, codes.Unavailable, "device cannot be read", false},
	{"unreadable at the end", func(ctx context.Context, v *csiVolume) error { return v.unreadable(ctx, refusedSize-mib) }, codes.Unavailable, "device cannot be read", false},
	{"an ext4 without its root directory", func(_ context.Context, v *csiVolume) error {
		_, err := run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-O", "^metadata_csum", v.backing())
		return errors.Join(err, v.editBacking(func(f *os.File) error {
			descriptor := make([]byte, 32)
			if _, err := f.ReadAt(descriptor, 4096); err != nil {
				return err
			}
			inodes := int64(binary.LittleEndian.Uint32(descriptor[8:])) * 4096
			_, err := f.WriteAt(make([]byte, 4096), inodes)
			return errors.Join(err, markErrors(f, false))
		}))
	}, codes.FailedPrecondition, "file system is damaged", true},
}

// refused stages each unusable volume twice. It checks that nothing changes on the target and that
// nothing is left on the node.
func (s *scenario) refused(p *plugin) {
	for i, r := range refusedDevices {
		s.inCase("refused: "+r.name, func() {
			v := s.newCSIVolume(p, fmt.Sprintf("refused-%d", i), refusedSize, "ext4")
			v.step("prepare", func(ctx context.Context) (string, error) { return "", r.prepare(ctx, v) })
			var before [sha256.Size]byte
			v.step("checksum", func(context.Context) (_ string, err error) {
				before, err = checksum(v.backing())
				return "", err
			})
			for range 2 {
				v.step("stage is refused", func(ctx context.Context) (string, error) {
					_, err := v.stage(ctx)
					detail, err := refusedWith(err, r.code, r.text)
					s.figures = r.code.String() + ": " + r.text
					return detail, err
				})
			}
			v.step("nothing is left", v.gone)
			v.step("nothing was changed", func(context.Context) (string, error) {
				after, err := checksum(v.backing())
				if err == nil && after != before && !r.repaired {
					err = errors.New("the volume's bytes have changed")
				}
				return "", err
			})
			v.delete()
		})
	}
}

// repaired damages a file system in a way that e2fsck can repair, and checks that staging repairs
// it and keeps the data.
func (s *scenario) repaired(p *plugin) {
	v := s.newCSIVolume(p, "dirty", 32*mib, "ext4")
	v.step("stage", v.stage)
	v.step("publish", v.publish)
	v.step("write", v.write)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("damage the file system", func(context.Context) (string, error) {
		return "", v.editBacking(func(f *os.File) error { return markErrors(f, true) })
	})
	v.step("stage repairs it", v.stage)
	v.step("publish", v.publish)
	v.step("read", v.read)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("no errors are left", func(context.Context) (string, error) {
		return "", v.editBacking(func(f *os.File) error {
			state := make([]byte, 2)
			if _, err := f.ReadAt(state, superblock+stateOffset); err != nil || binary.LittleEndian.Uint16(state) != cleanState {
				return fmt.Errorf("the state of the file system is %v: %w", state, err)
			}
			return nil
		})
	})
	v.step("nothing is left", v.gone)
	v.delete()
}

// These are fields of the ext4 superblock, as described in Linux's
// Documentation/filesystems/ext4/super.rst.
const (
	superblock      = 1024
	freeBlocks      = 0x0c
	stateOffset     = 0x3a
	checksumOffset  = 0x3fc
	cleanState      = 1
	stateWithErrors = 2
)

// markErrors sets a file system's error flag, with a wrong count of free blocks.
func markErrors(f *os.File, withChecksum bool) error {
	sb := make([]byte, 1024)
	if _, err := f.ReadAt(sb, superblock); err != nil {
		return err
	}
	binary.LittleEndian.PutUint16(sb[stateOffset:], stateWithErrors)
	binary.LittleEndian.PutUint32(sb[freeBlocks:], 7)
	if withChecksum {
		// ext4 does not invert the final result.
		binary.LittleEndian.PutUint32(sb[checksumOffset:], ^crc32.Checksum(sb[:checksumOffset], crc32.MakeTable(crc32.Castagnoli)))
	}
	_, err := f.WriteAt(sb, superblock)
	return err
}

// backing returns the volume's file on the guest's own target.
func (v *csiVolume) backing() string { return "/tmp/" + v.name }

func (v *csiVolume) editBacking(edit func(*os.File) error) error {
	f, err := os.OpenFile(v.backing(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(edit(f), f.Close())
}

func overwrite(at int64, data string) func(context.Context, *csiVolume) error {
	return func(_ context.Context, v *csiVolume) error {
		return v.editBacking(func(f *os.File) error {
			_, err := f.WriteAt([]byte(data), at)
			return err
		})
	}
}

func checksum(path string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return [sha256.Size]byte(h.Sum(nil)), err
}

// writeProtect makes the target refuse writes to the namespace, with the command Set Features.
func (v *csiVolume) writeProtect(ctx context.Context) error {
	n, err := newNode(nodeID)
	if err != nil {
		return err
	}
	e, err := connect.ParseExport(v.context, nil)
	if err != nil {
		return err
	}
	d, err := n.Connect(ctx, e)
	if err != nil {
		return err
	}
	err = setWriteProtect(d.Path)
	return errors.Join(err, n.Disconnect(ctx, e))
}

func setWriteProtect(device string) error {
	// struct nvme_passthru_cmd of linux/nvme_ioctl.h.
	type command struct {
		opcode, flags   uint8
		_               uint16
		nsid            uint32
		_               [2]uint32
		metadata, addr  uint64
		metaLen, length uint32
		dwords          [6]uint32
		timeout, result uint32
	}
	const (
		adminCommand        = 3<<30 | unsafe.Sizeof(command{})<<16 | 'N'<<8 | 0x41
		setFeatures         = 0x09
		writeProtectFeature = 0x84
		writeProtect        = 1
	)
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	c := command{opcode: setFeatures, nsid: 1, dwords: [6]uint32{writeProtectFeature, writeProtect}}
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), adminCommand, uintptr(unsafe.Pointer(&c)))
	if errno != 0 || r != 0 {
		return fmt.Errorf("set the namespace's write protection: status %d, %w", r, errno)
	}
	return nil
}

// unreadable exports the volume again, from a device with an unreadable area.
func (v *csiVolume) unreadable(_ context.Context, at int64) error {
	own, ok := v.target.(*nvmeTarget)
	if !ok {
		return errors.New("needs the guest's own target")
	}
	if err := modprobe("loop", "dm-mod"); err != nil {
		return err
	}
	loop, err := run("losetup", "--find", "--show", v.backing())
	if err != nil {
		return err
	}
	const sector = 512
	bad, end := at/sector, int64(refusedSize)/sector
	table := fmt.Sprintf("0 %d linear %s 0\n%d 8 error\n%d %d linear %s %d\n", bad, loop, bad, bad+8, end-bad-8, loop, bad+8)
	if err := os.Setenv("DM_DISABLE_UDEV", "1"); err != nil {
		return err
	}
	if _, err := run("dmsetup", "create", v.name, "--table", table); err != nil {
		return err
	}
	v.cleanup = func() error {
		_, err := run("dmsetup", "remove", v.name)
		_, loopErr := run("losetup", "--detach", loop)
		return errors.Join(err, loopErr)
	}
	namespace := filepath.Join("subsystems", own.made[v.name], "namespaces/1")
	own.set(namespace+"/enable", "0")
	own.set(namespace+"/device_path", "/dev/mapper/"+v.name)
	own.set(namespace+"/buffered_io", "0")
	own.set(namespace+"/enable", "1")
	return own.err
}
