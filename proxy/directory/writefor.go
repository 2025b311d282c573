package directory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Temp is the prefix of the names of files that are being written, or that a crash has left behind.
const Temp = ".new-"

// WriteFor atomically replaces the file at path, which must be absolute, with a file that only this
// user can read. It is intended for root, so it follows no links, and changes no other file.
func WriteFor(path string, text []byte, uid, gid int) (err error) {
	name := filepath.Base(path)
	if !filepath.IsAbs(path) || path == "/" || name == ".." {
		return errors.New("the path must be the absolute path of a file")
	}
	folder, err := Path(filepath.Dir(path)).open()
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	st, err := statOf(folder)
	if err != nil {
		return err
	}
	if int(st.Uid) != uid && st.Uid != 0 || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s must be a directory that only root and user %d may write to: use another one, such as that of RuntimeDirectory= in spdk_tgt's unit", folder.Name(), uid)
	}
	in := int(folder.Fd())
	temp := Temp + name
	if err := unix.Unlinkat(in, temp, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s, which an earlier run left behind: %w", filepath.Join(folder.Name(), temp), err)
	}
	file, err := openAt(in, temp, filepath.Join(folder.Name(), temp), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(file, text, uid, gid), file.Close()); err != nil {
		return errors.Join(err, unix.Unlinkat(in, temp, 0))
	}
	if err := unix.Renameat(in, temp, in, name); err != nil {
		return errors.Join(fmt.Errorf("rename %s: %w", temp, err), unix.Unlinkat(in, temp, 0))
	}
	return folder.Sync()
}

// fill writes a new file, and then changes its owner. Until then, only this process's user can read
// the file.
func fill(file *os.File, text []byte, uid, gid int) error {
	if _, err := file.Write(text); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if st, err := statOf(file); err != nil || int(st.Uid) == uid {
		return err
	}
	if err := file.Chown(uid, gid); err != nil {
		return fmt.Errorf("change its owner to user %d: %w: run this as root", uid, err)
	}
	return nil
}
