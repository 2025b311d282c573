package controller

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// answerChanges simulates spdkgate_lvol_changes.
func (s *simTarget) answerChanges(_ context.Context, _ string, params, result any) error {
	var p spdkrpc.SpdkgateLvolChangesParams
	if err := json.Unmarshal(params.(json.RawMessage), &p); err != nil {
		return err
	}
	answer, err := s.changes(p)
	if err != nil {
		return err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, result)
}

// changedClusters returns a response for a 16 MiB snapshot with 1 MiB clusters.
func changedClusters(list ...int) spdkrpc.ProxyLvolChanges {
	bitmap := make([]byte, 2)
	for _, i := range list {
		bitmap[i/8] |= 1 << (i % 8)
	}
	return spdkrpc.ProxyLvolChanges{Bitmap: base64.StdEncoding.EncodeToString(bitmap), ClusterSize: mib, Size: 16 * mib}
}

// A backup is a client that reads snapshot metadata through the driver's gRPC server.
type backup struct {
	csi.SnapshotMetadataClient
	*testController
	first, second string // ids of snapshots of one volume
	volume        string
}

func newBackup(t *testing.T, target *simTarget) *backup {
	b := newTestController(t, target)
	conn, stop := drivertest.Serve(t, &driver.Server{Identity: &driver.Identity{}, Controller: b.Controller, Metadata: b.Controller, Log: (&drivertest.Log{}).Logger()})
	t.Cleanup(func() { assert.NoError(t, stop()) })
	v, err := b.CreateVolume(t.Context(), b.request("pvc-1", 16*mib))
	require.NoError(t, err)
	return &backup{csi.NewSnapshotMetadataClient(conn), b, b.snapshot(t, "s1", v.GetVolume()).GetSnapshotId(), b.snapshot(t, "s2", v.GetVolume()).GetSnapshotId(), v.GetVolume().GetVolumeId()}
}

// A received contains the ranges received on a stream, in MiB, grouped by message.
type received struct {
	ranges [][][2]int64
	sizes  []int64
}

type message interface {
	GetBlockMetadata() []*csi.BlockMetadata
	GetBlockMetadataType() csi.BlockMetadataType
	GetVolumeCapacityBytes() int64
}

func receive[M any](t *testing.T, stream grpc.ServerStreamingClient[M]) (r received, err error) {
	for {
		next, err := stream.Recv()
		if err == io.EOF {
			return r, nil
		}
		if err != nil {
			return r, err
		}
		m := any(next).(message)
		var list [][2]int64
		for _, b := range m.GetBlockMetadata() {
			require.Zero(t, (b.GetByteOffset()|b.GetSizeBytes())%mib)
			list = append(list, [2]int64{b.GetByteOffset() / mib, b.GetSizeBytes() / mib})
		}
		assert.Equal(t, csi.BlockMetadataType_VARIABLE_LENGTH, m.GetBlockMetadataType())
		r.ranges, r.sizes = append(r.ranges, list), append(r.sizes, m.GetVolumeCapacityBytes())
	}
}

func (b *backup) allocated(t *testing.T, q *csi.GetMetadataAllocatedRequest) (received, error) {
	q.Secrets = b.secrets
	stream, err := b.GetMetadataAllocated(t.Context(), q)
	require.NoError(t, err)
	return receive(t, stream)
}

func (b *backup) delta(t *testing.T, q *csi.GetMetadataDeltaRequest) (received, error) {
	q.Secrets = b.secrets
	stream, err := b.GetMetadataDelta(t.Context(), q)
	require.NoError(t, err)
	return receive(t, stream)
}

func TestSnapshotMetadataIsStreamed(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newBackup(t, target)
	var asked []spdkrpc.SpdkgateLvolChangesParams
	target.changes = func(p spdkrpc.SpdkgateLvolChangesParams) (spdkrpc.ProxyLvolChanges, error) {
		asked = append(asked, p)
		return changedClusters(0, 1, 4, 6, 7, 8, 15), nil
	}
	type list = [][][2]int64
	all := [][2]int64{{0, 2}, {4, 1}, {6, 3}, {15, 1}}
	for _, c := range []struct {
		start int64
		most  int32
		want  list
	}{
		{0, 0, list{all}}, {0, 4, list{all}}, {0, 100, list{all}}, {0, 3, list{all[:3], all[3:]}}, {0, 1, list{all[:1], all[1:2], all[2:3], all[3:]}},
		{1, 0, list{all}}, {mib, 0, list{{{1, 1}, {4, 1}, {6, 3}, {15, 1}}}}, {2*mib - 1, 0, list{{{1, 1}, {4, 1}, {6, 3}, {15, 1}}}}, {2 * mib, 0, list{all[1:]}},
		{7*mib + 5, 2, list{{{7, 2}, {15, 1}}}}, {9 * mib, 0, list{all[3:]}}, {16*mib - 1, 0, list{all[3:]}}, {16 * mib, 0, list{nil}},
	} {
		got, err := b.allocated(t, &csi.GetMetadataAllocatedRequest{SnapshotId: b.second, StartingOffset: c.start, MaxResults: c.most})
		require.NoError(t, err)
		assert.Equal(t, c.want, got.ranges, "from %d, at most %d", c.start, c.most)
		delta, err := b.delta(t, &csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: b.second, StartingOffset: c.start, MaxResults: c.most})
		require.NoError(t, err)
		assert.Equal(t, got, delta)
		for _, size := range got.sizes {
			assert.EqualValues(t, 16*mib, size)
		}
	}
	assert.Nil(t, asked[0].Base)
	assert.Equal(t, b.second[3:], asked[1].Snapshot)
	assert.Equal(t, b.first[3:], *asked[1].Base)
	same, err := b.delta(t, &csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: b.first})
	require.NoError(t, err)
	assert.Len(t, same.ranges, 1)
	assert.Empty(t, b.locks.Held())
}

// The limit on ranges in a message keeps each message below gRPC's size limit.
func TestRangesPerMessageAreLimited(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newBackup(t, target)
	target.changes = func(spdkrpc.SpdkgateLvolChangesParams) (spdkrpc.ProxyLvolChanges, error) {
		return spdkrpc.ProxyLvolChanges{Bitmap: base64.StdEncoding.EncodeToString(slices.Repeat([]byte{0x55}, 8192)), ClusterSize: 256, Size: 16 * mib}, nil
	}
	stream, err := b.GetMetadataAllocated(t.Context(), &csi.GetMetadataAllocatedRequest{SnapshotId: b.second, Secrets: b.secrets, MaxResults: 1 << 30})
	require.NoError(t, err)
	for range 2 {
		m, err := stream.Recv()
		require.NoError(t, err)
		assert.Len(t, m.GetBlockMetadata(), 16384)
	}
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
}

// A client that stops reading its stream delays no deletion. The stream ends when the client
// cancels it.
func TestAbandonedStreamsDoNotDelayOtherCalls(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newBackup(t, target)
	const cluster = 64
	bitmap := base64.StdEncoding.EncodeToString(slices.Repeat([]byte{0x55}, 16*mib/cluster/8))
	target.changes = func(spdkrpc.SpdkgateLvolChangesParams) (spdkrpc.ProxyLvolChanges, error) {
		return spdkrpc.ProxyLvolChanges{Bitmap: bitmap, ClusterSize: cluster, Size: 16 * mib}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var streams []grpc.ServerStreamingClient[csi.GetMetadataDeltaResponse]
	for range 20 {
		stream, err := b.GetMetadataDelta(ctx, &csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: b.second, MaxResults: 1, Secrets: b.secrets})
		require.NoError(t, err)
		m, err := stream.Recv()
		require.NoError(t, err)
		assert.Len(t, m.GetBlockMetadata(), 1)
		streams = append(streams, stream)
	}
	for _, id := range []string{b.first, b.second} {
		_, err := b.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id, Secrets: b.secrets})
		require.NoError(t, err)
	}
	cancel()
	for _, stream := range streams {
		for {
			if _, err := stream.Recv(); err != nil {
				assert.Equal(t, codes.Canceled, status.Code(err))
				break
			}
		}
	}
	assert.Empty(t, b.locks.Held())
}

func TestInvalidMetadataRequestsAreRefused(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newBackup(t, target)
	var failed error
	target.changes = func(spdkrpc.SpdkgateLvolChangesParams) (spdkrpc.ProxyLvolChanges, error) {
		return changedClusters(1), failed
	}
	nobody := "t0:" + uuid.NewString()
	other, err := b.CreateVolume(t.Context(), b.request("pvc-2", 16*mib))
	require.NoError(t, err)
	others := b.snapshot(t, "s3", other.GetVolume()).GetSnapshotId()
	for name, c := range map[string]struct {
		q    *csi.GetMetadataDeltaRequest
		code codes.Code
	}{
		"no ids":                {&csi.GetMetadataDeltaRequest{}, codes.InvalidArgument},
		"no target":             {&csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first}, codes.InvalidArgument},
		"no base":               {&csi.GetMetadataDeltaRequest{TargetSnapshotId: b.first}, codes.InvalidArgument},
		"negative results":      {&csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: b.second, MaxResults: -1}, codes.InvalidArgument},
		"negative offset":       {&csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: b.second, StartingOffset: -1}, codes.OutOfRange},
		"offset beyond the end": {&csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: b.second, StartingOffset: 16*mib + 1}, codes.OutOfRange},
		"largest offset":        {&csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: b.second, StartingOffset: math.MaxInt64}, codes.OutOfRange},
		"a path":                {&csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: "t0:../../" + b.second[3:]}, codes.NotFound},
		"a name":                {&csi.GetMetadataDeltaRequest{BaseSnapshotId: "t0:lvs0/s1", TargetSnapshotId: b.second}, codes.NotFound},
		"unknown target":        {&csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: nobody}, codes.NotFound},
		"unknown base":          {&csi.GetMetadataDeltaRequest{BaseSnapshotId: nobody, TargetSnapshotId: b.second}, codes.NotFound},
		"volume":                {&csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: b.volume}, codes.NotFound},
		"of another volume":     {&csi.GetMetadataDeltaRequest{BaseSnapshotId: others, TargetSnapshotId: b.second}, codes.NotFound},
		"no id":                 {&csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: "x"}, codes.NotFound},
		"no storage server":     {&csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first[3:], TargetSnapshotId: b.second}, codes.NotFound},
		"another one":           {&csi.GetMetadataDeltaRequest{BaseSnapshotId: "t1" + b.first[2:], TargetSnapshotId: b.second}, codes.FailedPrecondition},
	} {
		_, err := b.delta(t, c.q)
		assert.Equal(t, c.code, status.Code(err), "%s: %v", name, err)
	}
	_, err = b.allocated(t, &csi.GetMetadataAllocatedRequest{})
	assert.Equal(t, codes.InvalidArgument, status.Code(err))

	answer := func(code int, text string) error {
		return &spdkrpc.Error{Method: "spdkgate_lvol_changes", Code: code, Message: text}
	}
	for name, c := range map[string]struct {
		failed error
		code   codes.Code
	}{
		"deleted meanwhile":   {answer(-int(syscall.ENODEV), "No such device"), codes.NotFound},
		"unsuitable":          {answer(-int(syscall.EINVAL), "external"), codes.FailedPrecondition},
		"unreadable":          {answer(-int(syscall.EOPNOTSUPP), "cannot be read"), codes.FailedPrecondition},
		"damaged":             {answer(-int(syscall.EBADMSG), "does not match"), codes.FailedPrecondition},
		"read error":          {answer(-int(syscall.EIO), "bdev nvme0n1 cannot be read"), codes.Unavailable},
		"an old proxy":        {answer(jsonrpc.CodeMethodNotFound, "no such method"), codes.FailedPrecondition},
		"no right":            {answer(jsonrpc.CodeForbidden, "denied"), codes.PermissionDenied},
		"beside a deletion":   {answer(jsonrpc.CodeTooMany, "retry"), codes.Unavailable},
		"a target that hangs": {answer(jsonrpc.CodeOutcomeUnknown, "no answer"), codes.Aborted},
	} {
		failed = c.failed
		_, err := b.delta(t, &csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: b.second})
		assert.Equal(t, c.code, status.Code(err), "%s: %v", name, err)
	}
	assert.Empty(t, b.locks.Held())
}

// No ranges are returned if the responses are contradictory or if the volume is encrypted.
func TestUnusableChangeResponsesAreRejected(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newBackup(t, target)
	for name, change := range map[string]func(r *spdkrpc.ProxyLvolChanges){
		"encrypted":          func(r *spdkrpc.ProxyLvolChanges) { r.LUKS = true },
		"a short bitmap":     func(r *spdkrpc.ProxyLvolChanges) { r.Bitmap = "AA==" },
		"a long bitmap":      func(r *spdkrpc.ProxyLvolChanges) { r.Bitmap = "AAAA" },
		"no base64":          func(r *spdkrpc.ProxyLvolChanges) { r.Bitmap = "!" },
		"no clusters":        func(r *spdkrpc.ProxyLvolChanges) { r.ClusterSize = 0 },
		"clusters of 3 MiB":  func(r *spdkrpc.ProxyLvolChanges) { r.ClusterSize = 3 * mib },
		"larger clusters":    func(r *spdkrpc.ProxyLvolChanges) { r.ClusterSize = 2 * mib },
		"another size":       func(r *spdkrpc.ProxyLvolChanges) { r.Size = 15 * mib },
		"a size of 2^63 + 1": func(r *spdkrpc.ProxyLvolChanges) { r.Size = 1<<63 + 1 },
	} {
		target.changes = func(spdkrpc.SpdkgateLvolChangesParams) (spdkrpc.ProxyLvolChanges, error) {
			r := changedClusters(1)
			change(&r)
			return r, nil
		}
		got, err := b.allocated(t, &csi.GetMetadataAllocatedRequest{SnapshotId: b.second})
		assert.Equal(t, codes.FailedPrecondition, status.Code(err), "%s: %v", name, err)
		assert.Empty(t, got.ranges)
		assert.ErrorContains(t, err, "full backup", name)
	}
}

// Allocated returns the clusters in the proxy's response, even for an encrypted volume.
func TestAllocatedClustersIncludeEncryptedVolumes(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newBackup(t, target)
	b.credentialsFile = filepath.Join(t.TempDir(), "secret.json")
	require.NoError(t, os.WriteFile(b.credentialsFile, []byte(b.secrets[config.SecretKey]), 0o600))
	id, err := request.ParseVolumeID(b.volume)
	require.NoError(t, err)
	answer := changedClusters(1, 3)
	answer.LUKS, answer.Counted = true, true
	var asked []spdkrpc.SpdkgateLvolChangesParams
	target.changes = func(p spdkrpc.SpdkgateLvolChangesParams) (spdkrpc.ProxyLvolChanges, error) {
		asked = append(asked, p)
		return answer, nil
	}
	got, err := b.Allocated(t.Context(), id, "")
	require.NoError(t, err)
	assert.Equal(t, inventory.Allocation{SizeBytes: 16 * mib, ClusterSize: mib, Bitmap: []byte{1<<1 | 1<<3, 0}, Counted: true}, got)
	assert.Equal(t, []spdkrpc.SpdkgateLvolChangesParams{{Snapshot: id.UUID, AllowVolume: new(true)}}, asked)
	for i, want := range map[int64]bool{0: false, mib - 1: false, mib: true, 2*mib - 1: true, 2 * mib: false} {
		assert.Equal(t, want, got.Has(i, 1), i)
	}
	assert.True(t, got.Has(0, mib+1))
	assert.True(t, got.Has(2*mib, 4*mib))
	assert.False(t, got.Has(4*mib, 100*mib), "beyond the end")

	// With a base, Allocated returns the changes since that snapshot, which must have the same
	// size.
	_, err = b.Allocated(t.Context(), id, b.first[3:])
	require.NoError(t, err)
	assert.Equal(t, spdkrpc.SpdkgateLvolChangesParams{Snapshot: id.UUID, Base: new(b.first[3:]), AllowVolume: new(true)}, asked[1])
	_, err = b.Allocated(t.Context(), id, uuid.NewString())
	require.ErrorIs(t, err, volume.ErrNotFound)
	_, err = b.Allocated(t.Context(), id, id.UUID)
	require.ErrorIs(t, err, volume.ErrWrongKind, "a volume is no base")
	other, err := b.CreateVolume(t.Context(), b.request("pvc-2", 32*mib))
	require.NoError(t, err)
	_, err = b.Allocated(t.Context(), id, b.snapshot(t, "s3", other.GetVolume()).GetSnapshotId()[3:])
	require.ErrorIs(t, err, volume.ErrNoChanges, "another size")
	require.Len(t, asked, 2)

	// FindNamed finds the volume and its snapshot.
	snapshot, found, err := b.FindNamed(t.Context(), id, "s1", "pvc-1")
	require.NoError(t, err)
	assert.Equal(t, []string{b.first, b.volume}, []string{snapshot, found})
	snapshot, found, err = b.FindNamed(t.Context(), id, "pvc-1", "s1")
	require.NoError(t, err)
	assert.Empty(t, snapshot+found)

	answer.Size = 15 * mib
	_, err = b.Allocated(t.Context(), id, "")
	require.ErrorIs(t, err, volume.ErrNoChanges)
	target.changes = nil
	_, err = b.Allocated(t.Context(), id, "")
	require.ErrorIs(t, err, volume.ErrNoChanges, "an earlier proxy does not have the method")
	_, err = b.Allocated(t.Context(), request.VolumeID{Target: "t0", UUID: uuid.NewString()}, "")
	require.ErrorIs(t, err, volume.ErrNotFound)
}

// While a call reads the changes between two snapshots, the controller deletes neither snapshot,
// but other calls may read the same changes.
func TestSnapshotsAreNotDeletedWhileTheirChangesAreRead(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newBackup(t, target)
	nested := false
	target.changes = func(spdkrpc.SpdkgateLvolChangesParams) (spdkrpc.ProxyLvolChanges, error) {
		if !nested {
			nested = true
			for _, id := range []string{b.first, b.second} {
				_, err := b.DeleteSnapshot(context.Background(), &csi.DeleteSnapshotRequest{SnapshotId: id, Secrets: b.secrets})
				assert.Equal(t, codes.Aborted, driver.Code(err))
			}
			_, err := b.delta(t, &csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: b.second})
			assert.NoError(t, err)
		}
		return changedClusters(1), nil
	}
	_, err := b.delta(t, &csi.GetMetadataDeltaRequest{BaseSnapshotId: b.first, TargetSnapshotId: b.second})
	require.NoError(t, err)
	assert.True(t, nested)
}
