// Package grant lets a group open the target's socket, which only the target's user can open when
// SPDK creates it. The package must not depend on the data sent over the socket.
package grant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Socket gives a group access to the socket at path. If wait is 0, it does nothing unless the
// socket exists. Otherwise, it waits up to that long for a socket with a listener: a killed target
// leaves its socket behind, and the next target creates a new one.
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
			return fmt.Errorf("%w after %s: check that spdk_tgt runs and listens there (its option -r)", err, wait)
		}
	}
}

// grant gives a group access to the socket. If live is set, it does so only if a process is
// listening at the socket. In a directory such as /var/tmp, anyone can replace the file, so grant
// keeps a file descriptor of the file that it has checked, and changes no other file.
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
		return fmt.Errorf("grant %s: it is not a socket that belongs to user %d, who runs this command. Nothing was changed; check which program created it, and remove it", path, os.Geteuid())
	}
	// This path leads to the opened socket, even if another file takes its name.
	opened := fmt.Sprintf("/proc/self/fd/%d", fd)
	if live {
		if err := connect(opened); err != nil {
			return &fs.PathError{Op: "grant: connect to", Path: path, Err: err}
		}
	}
	const mode = 0o660
	if int(st.Gid) == gid && st.Mode&0o777 == mode {
		return nil // an unnecessary change would wake processes that watch the socket
	}
	if err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "grant: change the group of", Path: path, Err: err}
	}
	// Older kernels do not support fchmod on an O_PATH descriptor.
	if err := unix.Chmod(opened, mode); err != nil {
		return &fs.PathError{Op: "grant: change the mode of", Path: path, Err: err}
	}
	return nil
}

// connect returns an error if no process is listening at the socket. It ignores EAGAIN, which means
// that the listener's queue is full.
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
