package service

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The control socket lies in the service's runtime folder, which is the
// service's own: only it and root may connect. Whoever does has the
// configuration read anew, and gets the outcome. A signal could not tell it.
const (
	controlName    = "control"
	defaultControl = "/run/spdk-proxy/" + controlName
	reloaded       = "reloaded\n"
	// controlWait bounds a reload: hashes are read, none is computed.
	controlWait = time.Minute
)

// openControl opens the control socket, if there is a runtime folder.
func openControl() (<-chan chan<- error, error) {
	folder := os.Getenv("RUNTIME_DIRECTORY")
	if folder == "" {
		return nil, nil
	}
	path := filepath.Join(folder, controlName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("control socket: %w", err) // of a process that was killed
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
	}
	asked := make(chan chan<- error)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // it never closes; the process ends
			}
			go answer(conn, asked)
		}
	}()
	return asked, nil
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
	path := defaultControl
	if folder := os.Getenv("RUNTIME_DIRECTORY"); folder != "" {
		path = filepath.Join(folder, controlName)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
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
