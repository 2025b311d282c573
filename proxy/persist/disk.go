package persist

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// disk is what a folder needs of a filesystem, one step each, so that tests can
// have each of them fail, or be the last before a crash. Names lie in one folder.
type disk interface {
	// write makes a new file, for its owner alone, and returns when it is durable.
	write(name string, text []byte) error
	read(name string) ([]byte, fs.FileInfo, error)
	list() ([]fs.FileInfo, error)
	link(old, name string) error
	rename(old, name string) error
	remove(name string) error
	// sync makes the folder's names durable.
	sync() error
	// lock keeps other processes from changing the folder until unlocked.
	lock() (unlock func(), err error)
}

// realDisk is a folder's path.
type realDisk string

func (d realDisk) at(name string) string { return filepath.Join(string(d), name) }

func (d realDisk) write(name string, text []byte) (err error) {
	f, err := os.OpenFile(d.at(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, d.giveToOwner(f), f.Sync(), f.Close())
}

// giveToOwner gives a file that root has made to whom the folder belongs, or a
// proxy of another user could not read it any more.
func (d realDisk) giveToOwner(f *os.File) error {
	var folder syscall.Stat_t
	if err := syscall.Stat(string(d), &folder); err != nil {
		return &fs.PathError{Op: "stat", Path: string(d), Err: err}
	}
	if int(folder.Uid) == os.Geteuid() {
		return nil
	}
	return f.Chown(int(folder.Uid), int(folder.Gid))
}

func (d realDisk) read(name string) ([]byte, fs.FileInfo, error) {
	text, err := os.ReadFile(d.at(name))
	if err != nil {
		return nil, nil, err
	}
	info, err := os.Stat(d.at(name))
	return text, info, err
}

func (d realDisk) list() (list []fs.FileInfo, err error) {
	entries, err := os.ReadDir(string(d))
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			list = append(list, info)
		}
	}
	return list, err
}

func (d realDisk) link(old, name string) error   { return os.Link(d.at(old), d.at(name)) }
func (d realDisk) rename(old, name string) error { return os.Rename(d.at(old), d.at(name)) }
func (d realDisk) remove(name string) error      { return os.Remove(d.at(name)) }

func (d realDisk) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d realDisk) lock() (func(), error) {
	f, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: string(d), Err: err}, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
