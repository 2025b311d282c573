package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"strings"
	"time"
)

// Listen listens on a CSI endpoint: unix:///path, unix:/path, /path, or unix://path, which means
// /path as in SPDK's spdk-csi. It replaces a socket left behind by a dead process, but not a socket
// on which another process is listening.
func Listen(endpoint string) (net.Listener, error) {
	p, err := SocketPath(endpoint)
	if err != nil {
		return nil, err
	}
	if err := removeStale(p); err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", endpoint, err)
	}
	l, err := net.Listen("unix", p)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", endpoint, err)
	}
	// Restrict access to the socket, because any process that can connect to it controls the
	// driver.
	if err := os.Chmod(p, 0o660); err != nil {
		return nil, errors.Join(fmt.Errorf("endpoint %s: %w", endpoint, err), l.Close())
	}
	return l, nil
}

// SocketPath returns the path of the socket in a CSI endpoint.
func SocketPath(endpoint string) (string, error) {
	scheme, rest, ok := strings.Cut(endpoint, ":")
	if !ok {
		scheme, rest = "unix", endpoint
		if !strings.HasPrefix(endpoint, "/") {
			rest = ""
		}
	}
	p := path.Clean("/" + strings.TrimPrefix(rest, "//"))
	if !strings.EqualFold(scheme, "unix") || p == "/" || strings.HasSuffix(rest, "/") {
		return "", fmt.Errorf("endpoint %q: it must be a UNIX socket, such as unix:///csi/csi.sock", endpoint)
	}
	return p, nil
}

func removeStale(p string) error {
	info, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket: remove it, or choose another endpoint", p)
	}
	if c, err := net.DialTimeout("unix", p, time.Second); err == nil {
		_ = c.Close()
		return fmt.Errorf("another process listens on %s: stop it, or choose another endpoint", p)
	}
	return os.Remove(p)
}
