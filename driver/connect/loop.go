package connect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// loop attaches a simulated target's volumes, which are files on this machine, as loop devices.
// Loop devices let tests use real devices and data on machines without NVMe. Like a real target,
// loop enforces the simulated target's lists of allowed hosts.
type loop struct {
	node    *node
	host    Host
	allowed bool
}

func (l *loop) connect(ctx context.Context, e Export, step *operation.Step) (Device, error) {
	file, err := l.open(e)
	if err != nil {
		return Device{}, err
	}
	defer file.backing.Close()
	step.Doing("waiting for another process that attaches %s", file.backing.Name())
	if err := unix.Flock(int(file.backing.Fd()), unix.LOCK_EX); err != nil {
		return Device{}, fmt.Errorf("lock the volume's file: %w", err)
	}
	// The loop device keeps the file open, so closing the file here would not release the lock.
	defer unix.Flock(int(file.backing.Fd()), unix.LOCK_UN)
	step.Doing("attaching %s to a loop device", file.backing.Name())
	attached, err := l.attachedTo(file)
	if err != nil {
		return Device{}, err
	}
	if len(attached) == 0 {
		if err := l.attach(ctx, file); err != nil {
			return Device{}, err
		}
	}
	var d Device
	var last error
	inTime, err := poll(ctx, func() (bool, error) {
		d, last = l.find(e)
		return last == nil, nil
	})
	if err == nil && !inTime {
		err = fmt.Errorf("%w %v: %w", timeout(ctx), step, last)
	}
	return d, err
}

func (l *loop) find(e Export) (Device, error) {
	if err := l.permitted(); err != nil {
		return Device{}, err
	}
	file, err := l.open(e)
	if errors.Is(err, ErrNoSubsystem) || errors.Is(err, ErrNoNamespace) {
		// The volume is no longer exported. Even if a loop device still exists, its volume cannot
		// be verified.
		return Device{}, fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	if err != nil {
		return Device{}, err
	}
	defer file.backing.Close()
	attached, err := l.attachedTo(file)
	switch {
	case err != nil:
		return Device{}, err
	case len(attached) == 0:
		return Device{}, fmt.Errorf("%w: no loop device is attached to %s", ErrNotConnected, file.backing.Name())
	case len(attached) > 1:
		return Device{}, fmt.Errorf("%w: %s and %s are both attached to %s: detach one (losetup -d)", ErrAmbiguous, attached[0], attached[1], file.backing.Name())
	}
	d, err := l.node.device(attached[0])
	d.UUID = file.uuid
	return d, err
}

// disconnect finds devices by the label that attach set, because the export may have been removed.
func (l *loop) disconnect(ctx context.Context, e Export, step *operation.Step) error {
	if err := l.permitted(); err != nil {
		return err
	}
	attached, err := l.labelled(e)
	if err != nil {
		return err
	}
	for _, name := range attached {
		if err := l.node.inUse(name); err != nil {
			return err
		}
		step.Doing("detaching %s", name)
		if err := l.detach(name); err != nil {
			return err
		}
	}
	step.Doing("waiting until the loop device is free")
	gone, err := poll(ctx, func() (bool, error) {
		attached, err = l.labelled(e)
		return len(attached) == 0, err
	})
	if err == nil && !gone {
		err = fmt.Errorf("%w: %w %v: %s is held open by another process", ErrBusy, timeout(ctx), step, strings.Join(attached, ", "))
	}
	return err
}

func (l *loop) rescan(ctx context.Context, e Export, wantBytes int64, step *operation.Step) (int64, error) {
	d, err := l.find(e)
	if err != nil {
		return 0, err
	}
	step.Doing("waiting for the device to grow")
	inTime, err := poll(ctx, func() (bool, error) {
		if err := l.setCapacity(filepath.Base(d.Path)); err != nil {
			return false, err
		}
		d, err = l.find(e)
		return err == nil && d.SizeBytes >= wantBytes, err
	})
	if err == nil && !inTime {
		err = fmt.Errorf("%w %v: %s has %d bytes, but %d are requested: resize the volume on the target first",
			timeout(ctx), step, d.Path, d.SizeBytes, wantBytes)
	}
	return d.SizeBytes, err
}

func (l *loop) permitted() error {
	if !l.allowed {
		return fmt.Errorf("%w: target type loop attaches files of this node, for simulated targets only: start the node plugin with loop devices allowed, or use a real target", ErrUnsupported)
	}
	return nil
}

// volumeFile is the file that contains a simulated volume.
type volumeFile struct {
	backing *os.File
	dev     uint64
	inode   uint64
	uuid    string
	label   string
}

// open checks that the simulated target exports the volume to this host, and opens the volume's
// file.
func (l *loop) open(e Export) (volumeFile, error) {
	if err := l.permitted(); err != nil {
		return volumeFile{}, err
	}
	path, id, err := simulatedVolume(e, l.host)
	if err != nil {
		return volumeFile{}, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return volumeFile{}, fmt.Errorf("open the volume's file: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return volumeFile{}, fmt.Errorf("%w: %s is not a regular file (%w)", ErrNoNamespace, path, err)
	}
	return volumeFile{backing: f, dev: st.Dev, inode: st.Ino, uuid: id, label: label(l.host, e, id)}, nil
}
