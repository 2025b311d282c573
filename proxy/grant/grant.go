// Package grant lets a group open the target's socket, which SPDK makes for its
// own user alone. It knows files and groups, and nothing of what is said there.
package grant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Socket gives the socket at path to the group. Without a socket nothing is done,
// or, with wait, it must come within that time.
func Socket(path string, gid int, wait time.Duration) error {
	for end := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		err := grant(path, gid)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if wait == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w after %s: does spdk_tgt listen elsewhere (its -r)?", err, wait)
		}
	}
}

// grant gives the socket to the group. The folder may be everybody's, as
// /var/tmp is, so it holds on to the one thing that it has looked at.
func grant(path string, gid int) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "grant", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "grant", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("grant %s: it is not a socket of user %d, who runs this: nothing was changed; find out who put it there", path, os.Geteuid())
	}
	const mode = 0o660
	if int(st.Gid) == gid && st.Mode&0o777 == mode {
		return nil // no event for whoever watches it
	}
	if err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "grant: change the group of", Path: path, Err: err}
	}
	// What was opened by O_PATH has no fchmod on older kernels.
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode); err != nil {
		return &fs.PathError{Op: "grant: change the mode of", Path: path, Err: err}
	}
	return nil
}
