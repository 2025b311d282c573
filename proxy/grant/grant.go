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
// or, with wait, it must come within that time, and somebody listen there: a
// target that was killed has left its socket, and the next one makes another.
func Socket(path string, gid int, wait time.Duration) error {
	for end := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		err := grant(path, gid, wait > 0)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
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
func grant(path string, gid int, live bool) error {
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
	// What was opened by O_PATH is reached again by this name.
	held := fmt.Sprintf("/proc/self/fd/%d", fd)
	if live {
		if err := connect(held); err != nil {
			return &fs.PathError{Op: "grant: connect to", Path: path, Err: err}
		}
	}
	const mode = 0o660
	if int(st.Gid) == gid && st.Mode&0o777 == mode {
		return nil // no event for whoever watches it
	}
	if err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "grant: change the group of", Path: path, Err: err}
	}
	// There is no fchmod for it on older kernels.
	if err := unix.Chmod(held, mode); err != nil {
		return &fs.PathError{Op: "grant: change the mode of", Path: path, Err: err}
	}
	return nil
}

// connect fails if nobody listens at the socket. One with too many at its door is
// somebody's.
func connect(path string) error {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	if err := unix.Connect(s, &unix.SockaddrUnix{Name: path}); !errors.Is(err, unix.EAGAIN) {
		return err
	}
	return nil
}
