package spdktest

import (
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// truncateData sets the length of a volume's file. If the file grows, its new end is a hole.
func (d *dataDir) truncateData(s *storeRecord, lvolUUID string, size uint64) error {
	if d == nil {
		return nil
	}
	f, err := os.OpenFile(d.dataOf(s, lvolUUID), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(int64(size)), f.Close())
}

// copyData copies a file to a new volume, preserving holes. The new file gets its final name only
// when it is complete.
func (d *dataDir) copyData(s *storeRecord, from, lvolUUID string, size uint64) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	name := d.dataOf(s, lvolUUID)
	dst, err := os.OpenFile(name+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = copyExtents(dst, src, int64(size))
	if err = errors.Join(err, dst.Close()); err != nil {
		return errors.Join(err, os.Remove(name+".new"))
	}
	return os.Rename(name+".new", name)
}

func copyExtents(dst, src *os.File, size int64) error {
	if err := dst.Truncate(size); err != nil {
		return err
	}
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return dst.Truncate(size)
	}
	return eachExtent(src, size, func(start, length int64) error {
		if _, err := dst.Seek(start, io.SeekStart); err != nil {
			return err
		}
		_, err := io.Copy(dst, io.NewSectionReader(src, start, length))
		return err
	})
}

// eachExtent calls the function do for every part of the first size bytes of f that is not a hole.
func eachExtent(f *os.File, size int64, do func(start, length int64) error) error {
	for at := int64(0); at < size; {
		start, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // the rest of the file is a hole
		}
		if err != nil {
			return err
		}
		end, err := f.Seek(start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		end = min(end, size)
		if start >= end {
			return nil
		}
		if err := do(start, end-start); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// reparentData changes a volume's parent. Every cluster that equals the old parent's is replaced
// with the new parent's.
func (d *dataDir) reparentData(s *storeRecord, l *lvolRecord, newParent string) error {
	if d == nil {
		return nil
	}
	own, err := os.OpenFile(d.dataOf(s, l.UUID), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer own.Close()
	old := ""
	if l.Parent != "" {
		old = d.dataOf(s, l.Parent)
	}
	var parents [2]io.ReaderAt
	for i, path := range []string{old, newParent} {
		parents[i] = bytes.NewReader(nil)
		if path == "" {
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		parents[i] = f
	}
	mine, before, after := make([]byte, s.ClusterSize), make([]byte, s.ClusterSize), make([]byte, s.ClusterSize)
	for at := int64(0); at < int64(l.Clusters*s.ClusterSize); at += int64(s.ClusterSize) {
		if err := errors.Join(readPadded(own, mine, at), readPadded(parents[0], before, at), readPadded(parents[1], after, at)); err != nil {
			return err
		}
		if bytes.Equal(mine, before) && !bytes.Equal(mine, after) {
			if _, err := own.WriteAt(after, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// readPadded fills buf from r at offset at, with zeroes past r's end.
func readPadded(r io.ReaderAt, buf []byte, at int64) error {
	n, err := r.ReadAt(buf, at)
	clear(buf[n:])
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
