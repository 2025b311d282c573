package directory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Path is the path of a directory that root also accesses (`spdk-proxy saved`). The service's
// user could replace the directory or its files with links, so operations do not follow links: each
// operation opens the directory, and accesses files relative to it.
type Path string

func (d Path) at(name string) string { return filepath.Join(string(d), name) }

// CheckPrivate returns an error if the path is not a directory, or if other users could read or
// replace files in it. CheckPrivate changes nothing. Root may use another user's directory.
func (d Path) CheckPrivate() error {
	info, err := os.Lstat(string(d))
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir() || !ok:
		return fmt.Errorf("%s is not a directory: name a directory", d)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is accessible to other users, who could read or change its files: chmod 700 %s", d, d)
	case int(st.Uid) != os.Geteuid() && os.Geteuid() != 0:
		return fmt.Errorf("%s belongs to another user: chown it to the user of spdk-proxy", d)
	}
	return nil
}

// open opens the directory. Every operation calls it, because a restored backup may have replaced
// the directory.
func (d Path) open() (*os.File, error) {
	return openAt(unix.AT_FDCWD, string(d), string(d), unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// openAt opens a file in a directory. It neither follows links nor blocks. path is used only in
// error messages.
func openAt(folder int, name, path string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(folder, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, mode)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("open %s: %w: it is a link, or of the wrong type: find out which process created it, and remove it", path, ErrSuspect)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// within opens the directory and runs step with it.
func (d Path) within(op, name string, step func(folder int) error) error {
	f, err := d.open()
	if err != nil {
		return err
	}
	if err := step(int(f.Fd())); err != nil {
		return errors.Join(&fs.PathError{Op: op, Path: d.at(name), Err: err}, f.Close())
	}
	return f.Close()
}

// Write durably creates a file that only its owner can read.
func (d Path) Write(name string, text []byte) error {
	folder, err := d.open()
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	f, err := openAt(int(folder.Fd()), name, d.at(name), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, giveToOwner(f, folder), f.Sync(), f.Close())
}

// giveToOwner changes the owner of a file created by root to the directory's owner, so that a proxy
// that runs as this user can read the file.
func giveToOwner(f, folder *os.File) error {
	st, err := statOf(folder)
	if err != nil || int(st.Uid) == os.Geteuid() {
		return err
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}

func statOf(f *os.File) (st unix.Stat_t, err error) {
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return st, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return st, nil
}

// Read returns the text of a file and its metadata. If another user may have created the file, the
// error wraps ErrSuspect.
func (d Path) Read(name string) ([]byte, fs.FileInfo, error) {
	folder, err := d.open()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = folder.Close() }()
	f, err := openAt(int(folder.Fd()), name, d.at(name), unix.O_RDONLY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	if err := checkSaved(f, folder); err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	return text, info, err
}

// ErrSuspect means that a file was not read because another user may have created it: it is a link,
// is not a regular file, or belongs to another user.
var ErrSuspect = errors.New("another user may have created this file")

// checkSaved refuses files that the directory's owner could have linked into the directory without
// permission to read them; otherwise, root would read such a file on that user's behalf. A file
// owned by root is accepted, because an administrator may have edited it, unless the file has a
// second name elsewhere.
func checkSaved(f, folder *os.File) error {
	own, err := statOf(folder)
	if err != nil {
		return err
	}
	st, err := statOf(f)
	switch {
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("read %s: %w: it is not a regular file: find out which process created it, and remove it", f.Name(), ErrSuspect)
	case st.Uid != own.Uid && (st.Uid != 0 || st.Nlink > 1):
		return fmt.Errorf("read %s: %w: it belongs to user %d, but its directory to user %d: check its content, then change its owner to that of the directory (chown)", f.Name(), ErrSuspect, st.Uid, own.Uid)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("read %s: %w: other users may write to it: check its content, then chmod 600", f.Name(), ErrSuspect)
	}
	return nil
}

// SetTime sets the modification time of a file.
func (d Path) SetTime(name string, at time.Time) error {
	times := []unix.Timespec{unix.NsecToTimespec(at.UnixNano()), unix.NsecToTimespec(at.UnixNano())}
	return d.within("set the time of", name, func(folder int) error { return unix.UtimesNanoAt(folder, name, times, unix.AT_SYMLINK_NOFOLLOW) })
}

// List describes the regular files in the directory.
func (d Path) List() (list []fs.FileInfo, err error) {
	folder, err := d.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	all, err := folder.Readdir(-1) // omits files removed in the meantime
	for _, info := range all {
		if info.Mode().IsRegular() {
			list = append(list, info)
		}
	}
	return list, err
}

// Link gives a file a second name.
func (d Path) Link(old, name string) error {
	return d.within("link", name, func(folder int) error { return unix.Linkat(folder, old, folder, name, 0) })
}

// Rename renames a file, and replaces an existing file with the new name.
func (d Path) Rename(old, name string) error {
	return d.within("rename", name, func(folder int) error { return unix.Renameat(folder, old, folder, name) })
}

// Remove removes a file.
func (d Path) Remove(name string) error {
	return d.within("remove", name, func(folder int) error { return unix.Unlinkat(folder, name, 0) })
}

// Sync makes previous creations and renames of files durable.
func (d Path) Sync() error {
	f, err := d.open()
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Lock prevents other processes from changing the directory until unlock is called.
func (d Path) Lock() (unlock func(), err error) {
	f, err := d.open()
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: string(d), Err: err}, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
