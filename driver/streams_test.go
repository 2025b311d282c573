package driver

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// A stubMetadata is a server. Its GetMetadataDelta sends two messages and returns the result of a
// function.
type stubMetadata struct {
	csi.UnimplementedSnapshotMetadataServer
	delta func(ctx context.Context) error
}

func (s stubMetadata) GetMetadataDelta(_ *csi.GetMetadataDeltaRequest, stream csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	for range 2 {
		if err := stream.Send(&csi.GetMetadataDeltaResponse{VolumeCapacityBytes: 7}); err != nil {
			return err
		}
	}
	return s.delta(stream.Context())
}

func messages(t *testing.T, ctx context.Context, c csi.SnapshotMetadataClient, q *csi.GetMetadataDeltaRequest) (n int, err error) {
	stream, err := c.GetMetadataDelta(ctx, q)
	require.NoError(t, err)
	for ; ; n++ {
		_, err := stream.Recv()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// Streaming calls return gRPC codes, are logged, and survive panics like all other calls.
func TestStreamingCallsBehaveLikeOtherCalls(t *testing.T) {
	var failure func(context.Context) error
	logs := &drivertest.Log{}
	conn, stop := drivertest.Serve(t, &Server{
		Identity: &Identity{}, Metadata: stubMetadata{delta: func(ctx context.Context) error { return failure(ctx) }}, Log: logs.Logger(), SlowAfter: time.Millisecond,
	})
	c := csi.NewSnapshotMetadataClient(conn)
	q := &csi.GetMetadataDeltaRequest{BaseSnapshotId: "t0:b", TargetSnapshotId: "t0:s", Secrets: map[string]string{"token": "not to be logged"}}
	failure = func(context.Context) error { return nil }
	n, err := messages(t, t.Context(), c, q)
	require.NoError(t, err)
	assert.Equal(t, 2, n)

	failure = func(context.Context) error { return volume.ErrNoChanges }
	_, err = messages(t, t.Context(), c, q)
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
	failure = func(context.Context) error { panic("a bug") }
	for range 2 {
		_, err = messages(t, t.Context(), c, q)
		assert.Equal(t, codes.Internal, status.Code(err))
		assert.ErrorContains(t, err, "see its log")
	}
	failure = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	bounded, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = messages(t, bounded, c, q)
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
	require.Eventually(t, func() bool { return strings.Contains(logs.String(), "call is slow") }, time.Minute, time.Millisecond)
	_, err = csi.NewSnapshotMetadataClient(conn).GetMetadataAllocated(t.Context(), &csi.GetMetadataAllocatedRequest{})
	require.NoError(t, err)
	require.NoError(t, stop())
	text := logs.String()
	assert.Contains(t, text, "method=GetMetadataDelta request_id=")
	assert.Contains(t, text, `snapshot=t0:s base=t0:b error="the changed blocks are unknown" code=FailedPrecondition took=`)
	assert.Regexp(t, "code=(DeadlineExceeded|Canceled)", text)
	assert.Contains(t, text, "a bug")
	assert.NotContains(t, text, "not to be logged")
}

// Calls from programs that watch the process's health are not logged as CSI calls.
func TestHealthWatchesAreNotLogged(t *testing.T) {
	logs := &drivertest.Log{}
	conn, stop := drivertest.Serve(t, &Server{Identity: &Identity{}, Log: logs.Logger()})
	ctx, cancel := context.WithCancel(t.Context())
	watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	m, err := watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, m.GetStatus())
	cancel()
	_, err = watch.Recv()
	require.Error(t, err)
	require.NoError(t, stop())
	assert.NotContains(t, logs.String(), "Watch")
	assert.False(t, errors.Is(err, io.EOF))
}
