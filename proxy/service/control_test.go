package service

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A fullListener fails to accept connections a few times, as if there were too many open files.
type fullListener struct {
	net.Listener
	left atomic.Int32
}

func (l *fullListener) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestControlSocketWorksAfterErrors(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	l, err := openSocket(controlName)
	require.NoError(t, err)
	full := &fullListener{Listener: l}
	full.left.Store(2)
	requests, ended := make(chan chan<- error), make(chan struct{})
	var log bytes.Buffer
	go func() {
		defer close(ended)
		acceptReloads(full, requests, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	go func() { (<-requests) <- nil }()
	require.NoError(t, Reload(""))
	require.NoError(t, l.Close())
	<-ended
	assert.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
	assert.Contains(t, log.String(), "too many open files")
	_, err = net.Dial("unix", socketPath("", controlName))
	require.Error(t, err)
}
