package persist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CopyCurrent copies the current file, if spdk_tgt can load it, to path, readable only by the
// given user: that of spdk_tgt, if it differs from this directory's owner. Only root and that
// user may have write access to path's directory. It is meant for root: it follows no link in
// either directory, and changes no other file.
func (f *Folder) CopyCurrent(path string, uid, gid int) error {
	unlock, err := f.disk.lock()
	if err != nil {
		return fmt.Errorf("lock the directory of saved configurations: %w", err)
	}
	defer unlock()
	text, _, err := f.disk.read(Current)
	if err != nil {
		return fmt.Errorf("copy the saved configuration: %w", err)
	}
	if _, err := parse(text); err != nil {
		return fmt.Errorf("copy the saved configuration: %s/%s: %w", f.path, Current, err)
	}
	if err := writeFor(path, text, uid, gid); err != nil {
		return fmt.Errorf("copy the saved configuration to %s: %w", path, err)
	}
	return nil
}

// writeFor atomically replaces a file by one for the given user.
func writeFor(path string, text []byte, uid, gid int) (err error) {
	name := filepath.Base(path)
	if !filepath.IsAbs(path) || path == "/" || name == ".." {
		return errors.New("the path must be the absolute path of a file")
	}
	folder, err := realDisk(filepath.Dir(path)).open()
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
	temp := tempTag + name
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

// fill writes a new file and then changes its owner. Until then, only this process's user can
// read it.
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
