package service

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The control socket lies in the service's runtime folder, which is the
// service's own: only it and root may connect. Whoever does has the
// configuration read anew, and gets the outcome. A signal could not tell it.
const (
	runtimeFolder = "/run/spdk-proxy"
	controlName   = "control"
	reloaded      = "reloaded\n"
	// controlWait bounds a reload: hashes are read, none is computed.
	controlWait = time.Minute
)

// openControl opens the control socket, if there is a runtime folder.
func openControl(log *slog.Logger) (<-chan chan<- error, error) {
	l, err := openSocket(controlName)
	if l == nil || err != nil {
		return nil, err
	}
	asked := make(chan chan<- error)
	go acceptReloads(l, asked, log)
	return asked, nil
}

// acceptAgain is how soon the socket is tried again after an error, such as too
// many open files: a reload must be possible once that is over.
const acceptAgain = 100 * time.Millisecond

// acceptReloads accepts until the listener is closed, at the end of the process.
func acceptReloads(l net.Listener, asked chan<- chan<- error, log *slog.Logger) {
	for failed := false; ; {
		conn, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !failed {
				log.Error("control socket cannot accept a connection; it is tried again", "socket", l.Addr().String(), "error", err)
			}
			failed = true
			time.Sleep(acceptAgain)
		default:
			failed = false
			go answer(conn, asked)
		}
	}
}

// openSocket opens a socket in the runtime folder; nil if there is no such folder.
func openSocket(name string) (net.Listener, error) {
	if os.Getenv("RUNTIME_DIRECTORY") == "" {
		return nil, nil
	}
	path := socketPath(name)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s socket: %w", name, err) // of a process that was killed
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("%s socket: %w", name, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("%s socket: %w", name, err), l.Close())
	}
	return l, nil
}

// socketPath is where a socket of the service lies.
func socketPath(name string) string {
	return filepath.Join(cmp.Or(os.Getenv("RUNTIME_DIRECTORY"), runtimeFolder), name)
}

func answer(conn net.Conn, asked chan<- chan<- error) {
	defer func() { _ = conn.Close() }()
	outcome := make(chan error, 1)
	asked <- outcome
	text := reloaded
	if err := <-outcome; err != nil {
		text = err.Error()
	}
	_ = conn.SetWriteDeadline(time.Now().Add(controlWait))
	_, _ = io.WriteString(conn, text)
}

// Reload has the running service read its configuration anew. Without an error,
// the new configuration holds.
func Reload() error {
	conn, err := net.Dial("unix", socketPath(controlName))
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("reload: %w: only root may", err)
	case err != nil:
		return fmt.Errorf("reload: %w: is the service running?", err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(controlWait))
	text, err := io.ReadAll(conn)
	switch {
	case err != nil:
		return fmt.Errorf("reload: no outcome: %w: see the service's log", err)
	case len(text) == 0:
		return errors.New("reload: the service ended: see its log")
	case string(text) != reloaded:
		return fmt.Errorf("refused, the old configuration stays: %s", text)
	}
	return nil
}
