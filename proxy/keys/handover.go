package keys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// HandOver changes the owner of the directory and its key files to spdk_tgt's user, because SPDK
// accepts only files that belong to the user it runs as. HandOver must be called as root before
// spdk_tgt starts as this user. It may be called repeatedly. It returns how many files got a new
// owner. A missing directory is not an error.
//
// The previous owner may have put anything into the directory. Therefore, HandOver follows no
// links, and changes only regular files that contain a key. It skips all other files, and names
// them in the error.
func HandOver(dir string, uid, gid int) (given int, err error) {
	folder, err := openNoFollow(unix.AT_FDCWD, dir, dir, unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("hand over the keys: %w", err)
	}
	defer func() { _ = folder.Close() }()
	own, err := statOf(folder)
	if err != nil {
		return 0, fmt.Errorf("hand over the keys: %w", err)
	}
	if own.Mode&0o077 != 0 {
		return 0, fmt.Errorf("hand over the keys: other users can access %s: check its content, then chmod 700", dir)
	}
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return 0, fmt.Errorf("hand over the keys: %w", err)
	}
	var failed []error
	for _, name := range names {
		key, ok := strings.CutSuffix(name, suffix)
		if !ok || checkName(key) != nil {
			continue
		}
		is, err := handOverFile(folder, name, own.Uid, uid, gid)
		if err != nil {
			failed = append(failed, fmt.Errorf("hand over a key: %w", err))
		}
		if is {
			given++
		}
	}
	// Change the directory last, because handOverFile compares the owner of each file with that of
	// the directory.
	if int(own.Uid) != uid || int(own.Gid) != gid {
		failed = append(failed, folder.Chown(uid, gid))
	}
	return given, errors.Join(append(failed, folder.Sync())...)
}

// handOverFile changes the owner of one file, unless the owner is already uid.
func handOverFile(folder *os.File, name string, folderUser uint32, uid, gid int) (given bool, err error) {
	path := filepath.Join(folder.Name(), name)
	f, err := openNoFollow(int(folder.Fd()), name, path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // removed in the meantime
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	st, err := statOf(f)
	switch {
	case err != nil:
		return false, err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return false, fmt.Errorf("%s is not a regular file: check which program created it, and remove it", path)
	case int(st.Uid) == uid:
		return false, nil
	case st.Uid != folderUser && (st.Uid != 0 || st.Nlink > 1):
		return false, fmt.Errorf("%s belongs to user %d, but its directory to user %d: check which program created it, then give it to spdk_tgt's user (chown)", path, st.Uid, folderUser)
	case st.Mode&0o077 != 0:
		return false, fmt.Errorf("other users can access %s, and SPDK refuses such a file: replace the key, or chmod 600", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, longest+1))
	if err != nil {
		return false, err
	}
	if err := CheckSecret(string(text)); err != nil {
		return false, fmt.Errorf("%s does not contain a key: %w", path, err)
	}
	if err := f.Chown(uid, gid); err != nil {
		return false, fmt.Errorf("%w: run this as root", err)
	}
	return true, f.Sync()
}

// openNoFollow opens a file in a directory for reading. It neither follows links nor blocks.
func openNoFollow(folder int, name, path string, flags int) (*os.File, error) {
	fd, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|flags, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENXIO) {
		return nil, fmt.Errorf("%s is a link, or has the wrong file type: check which program created it, and remove it", path)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func statOf(f *os.File) (st unix.Stat_t, err error) {
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return st, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return st, nil
}
