package localsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Place describes where a socket is, and who may connect to it.
type Place struct {
	Path string
	Mode fs.FileMode // permission bits; connecting requires write permission
	// UID and GID are the owner and group of the socket. -1 means those of this process.
	UID, GID int
}

// backlog is the maximum number of connections that wait to be accepted. The kernel may impose a
// lower limit.
const backlog = 4096

// Listen creates a socket and listens at it. Whatever the umask is, the socket never has more
// permissions than p grants, and clients cannot connect before the permissions are set. Listen
// replaces a socket at which no process is listening. For any other existing file, it returns an
// error. Closing the listener removes the socket, unless another process has replaced it.
func Listen(p Place) (net.Listener, error) {
	if err := checkFolder(filepath.Dir(p.Path)); err != nil {
		return nil, err
	}
	if err := removeStale(p.Path); err != nil {
		return nil, err
	}
	l, err := listen(p)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", p.Path, err)
	}
	return l, nil
}

func listen(p Place) (_ net.Listener, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), p.Path)
	defer func() { _ = file.Close() }() // the listener uses a duplicate
	// The socket's file gets the mode that the socket has at this point.
	if err := unix.Fchmod(fd, 0); err != nil {
		return nil, os.NewSyscallError("fchmod", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: p.Path}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	l := &listener{path: p.Path}
	if l.made, err = os.Lstat(p.Path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.remove()
		}
	}()
	if p.UID >= 0 || p.GID >= 0 {
		if err := os.Lchown(p.Path, p.UID, p.GID); err != nil {
			return nil, fmt.Errorf("%w: only root can assign the socket to another user; other users can assign it only to their own groups", err)
		}
	}
	if err := os.Chmod(p.Path, p.Mode.Perm()); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, backlog); err != nil { // clients can connect only after this call
		return nil, os.NewSyscallError("listen", err)
	}
	if l.Listener, err = net.FileListener(file); err != nil {
		return nil, err
	}
	return l, nil
}

// checkFolder returns an error if every user could replace a socket in the directory.
func checkFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("the directory of the socket: %w: create it, or choose another path", err)
	}
	if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("every user of this host may replace files in %s: choose another directory for the socket, or chmod o-w %s", dir, dir)
	}
	return nil
}

// removeStale removes a socket that another process has left behind.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket: remove it, or choose another path", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("another process may be listening at %s: end it, or choose another path", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket left by an earlier process: %w", err)
	}
	return nil
}

type listener struct {
	net.Listener
	path string
	made fs.FileInfo
	once sync.Once
}

// Close removes the socket's file before it closes the socket, so that a process that finds the
// file can connect.
func (l *listener) Close() error {
	l.once.Do(l.remove)
	return l.Listener.Close()
}

func (l *listener) remove() {
	if info, err := os.Lstat(l.path); err == nil && os.SameFile(info, l.made) {
		_ = os.Remove(l.path)
	}
}
