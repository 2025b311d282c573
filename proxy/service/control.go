package service

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The control socket is in the service's runtime directory, so that only the service's user and
// root can connect. When a client connects, the service reloads its configuration and sends the
// outcome, which a signal could not return.
const (
	controlName = "control"
	reloaded    = "reloaded\n"
	// controlWait limits the duration of a reload, which reads password hashes but does not compute
	// any.
	controlWait = time.Minute
)

// openControl opens the control socket, if there is a runtime directory.
func openControl(log *slog.Logger) (<-chan chan<- error, error) {
	l, err := openSocket(controlName)
	if l == nil || err != nil {
		return nil, err
	}
	requests := make(chan chan<- error)
	go acceptReloads(l, requests, log)
	return requests, nil
}

// acceptRetry is the delay before the next attempt after an accept error, such as too many open
// files. Reloads must work again once the cause of the error is gone.
const acceptRetry = 100 * time.Millisecond

// acceptReloads accepts connections until the listener is closed, at the end of the process.
func acceptReloads(l net.Listener, requests chan<- chan<- error, log *slog.Logger) {
	for failed := false; ; {
		conn, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !failed {
				log.Error("control socket cannot accept a connection; the proxy retries", "socket", l.Addr().String(), "error", err)
			}
			failed = true
			time.Sleep(acceptRetry)
		default:
			failed = false
			go handleReload(conn, requests)
		}
	}
}

// openSocket opens a socket in the runtime directory. If there is no such directory, it returns
// nil.
func openSocket(name string) (net.Listener, error) {
	if os.Getenv(runtimeVariable) == "" {
		return nil, nil
	}
	path := filepath.Join(os.Getenv(runtimeVariable), name)
	// A killed process leaves its socket behind.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s socket: %w", name, err)
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

// runtimeVariable is the environment variable with the runtime directory. systemd sets it for all
// commands of the unit, including ExecReload=.
const runtimeVariable = "RUNTIME_DIRECTORY"

// socketPath returns the path of a service's socket. If instance is empty, the socket belongs to
// the service whose unit runs this command.
func socketPath(instance Instance, name string) string {
	if dir := os.Getenv(runtimeVariable); instance == "" && dir != "" {
		return filepath.Join(dir, name)
	}
	return filepath.Join(instance.runtimeDirectory(), name)
}

// handleReload requests a reload, and writes the outcome to conn.
func handleReload(conn net.Conn, requests chan<- chan<- error) {
	defer func() { _ = conn.Close() }()
	outcome := make(chan error, 1)
	requests <- outcome
	text := reloaded
	if err := <-outcome; err != nil {
		text = err.Error()
	}
	_ = conn.SetWriteDeadline(time.Now().Add(controlWait))
	_, _ = io.WriteString(conn, text)
}

// Reload makes a running service reload its configuration. It returns nil if the new configuration
// is in effect, or the reason why the old configuration remains in effect.
func Reload(instance Instance) error {
	conn, err := net.Dial("unix", socketPath(instance, controlName))
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("reload: %w: run this as root", err)
	case err != nil:
		return fmt.Errorf("reload: %w: check that the service runs (systemctl status %s); send SIGHUP to a proxy that systemd did not start", err, instance.unit())
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(controlWait))
	text, err := io.ReadAll(conn)
	switch {
	case err != nil:
		return fmt.Errorf("reload: the service did not report the outcome: %w: see its log", err)
	case len(text) == 0:
		return errors.New("reload: the service ended before it reported the outcome: see its log")
	case string(text) != reloaded:
		return fmt.Errorf("reload refused, the old configuration remains in effect: %s", text)
	}
	return nil
}
