package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// These bytes are written to the deleted volume and to the new volume.
const (
	deletedByte = 0xA5
	ownByte     = 0x5A
)

// deleted is the scenario where a new volume reuses the clusters of a deleted volume. It reports to
// the host which bytes can be read from the new volume.
func (s *scenario) deleted() (err error) {
	defer s.end(&err)
	n, err := newNode("kernel-test")
	if err != nil {
		return err
	}
	// Direct I/O needs aligned memory.
	cluster, err := unix.Mmap(-1, 0, control.ClusterBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}

	old := s.makeVolume(n, "old", control.DeletedBytes, "")
	old.step("connect", old.connect)
	old.step("fill with a pattern", func(context.Context) (string, error) {
		return old.writeClusters(control.DeletedBytes/control.ClusterBytes, fill(cluster, deletedByte))
	})
	old.step("read the pattern", func(context.Context) (string, error) {
		f, err := old.count(cluster)
		if f.Foreign != control.DeletedBytes {
			err = errors.Join(err, fmt.Errorf("want %d bytes of the pattern, found %+v", control.DeletedBytes, f))
		}
		return fmt.Sprintf("%+v", f), err
	})
	old.step("disconnect", old.disconnect)
	old.removeVolume()

	v := s.makeVolume(n, "new", control.DeletedBytes, "")
	v.step("connect", v.connect)
	v.step("write a part of some clusters", func(context.Context) (string, error) {
		return v.writeClusters(control.OwnClusters, fill(cluster[:control.OwnBytes], ownByte))
	})
	v.step("read everything", func(ctx context.Context) (string, error) {
		f, err := v.count(cluster)
		if err == nil {
			err = s.host.post(ctx, control.PathFound, f, nil)
		}
		return fmt.Sprintf("%+v", f), err
	})
	v.step("disconnect", v.disconnect)
	v.removeVolume()
	s.step("no controllers are left", func(context.Context) (string, error) { return "", noControllers() })
	return nil
}

func fill(buf []byte, b byte) []byte {
	for i := range buf {
		buf[i] = b
	}
	return buf
}

// writeClusters writes data to the beginning of each of the first n clusters, bypassing the page
// cache.
func (v *volume) writeClusters(n int64, data []byte) (string, error) {
	f, err := os.OpenFile(v.device.Path, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return "", err
	}
	for i := range n {
		if _, err = f.WriteAt(data, i*control.ClusterBytes); err != nil {
			break
		}
	}
	return fmt.Sprintf("%d bytes in each of %d clusters", len(data), n), errors.Join(err, f.Sync(), f.Close())
}

// count reads the whole volume, bypassing the page cache, and counts the bytes by origin.
func (v *volume) count(cluster []byte) (found control.Found, err error) {
	f, err := os.OpenFile(v.device.Path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return found, err
	}
	defer f.Close()
	for at := int64(0); at < v.device.SizeBytes; at += int64(len(cluster)) {
		if _, err := f.ReadAt(cluster, at); err != nil {
			return found, err
		}
		zero, own := int64(bytes.Count(cluster, []byte{0})), int64(bytes.Count(cluster, []byte{ownByte}))
		found.Zero += zero
		found.Own += own
		found.Foreign += int64(len(cluster)) - zero - own
	}
	return found, nil
}
