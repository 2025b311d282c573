package drivertest

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// A Log records log lines. It is safe for concurrent use; the zero Log is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all lines so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Logger returns a logger that writes lines of every level into the log.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Serve runs a server on its own UNIX socket, and returns a connection to that socket. stop stops
// the server and returns the result of its method Serve.
func Serve(t *testing.T, s interface {
	Serve(ctx context.Context, l net.Listener) error
}) (conn *grpc.ClientConn, stop func() error) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "csi.sock"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	conn, err = grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return conn, func() error { cancel(); return <-ended }
}

// RequireCode requires that err, a gRPC status or nil, has a code, and contains each text in its
// message. driver.Status converts a service's errors to a status.
func RequireCode(t *testing.T, want codes.Code, err error, text ...string) {
	t.Helper()
	require.Equal(t, want, status.Code(err), "%v", err)
	for _, x := range text {
		require.Contains(t, status.Convert(err).Message(), x)
	}
}

// Retry repeats a call while codeOf returns a retryable code for its error.
func Retry[T any](codeOf func(error) codes.Code, call func() (T, error)) (T, error) {
	for {
		v, err := call()
		if c := codeOf(err); c != codes.Aborted && c != codes.Unavailable {
			return v, err
		}
	}
}

// Writer returns the capability of most volumes: mounted, for one writing node.
func Writer() *csi.VolumeCapability {
	return Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, false)
}

// Capability returns a volume capability, mounted or, if block is true, as a raw block device.
func Capability(mode csi.VolumeCapability_AccessMode_Mode, block bool) *csi.VolumeCapability {
	c := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
	if block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	return c
}
