package controller

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// callsByID returns calls for a volume or snapshot with the given id.
func callsByID(b *testController) map[string]func(ctx context.Context, id string) error {
	return map[string]func(ctx context.Context, id string) error{
		"ControllerPublishVolume": func(ctx context.Context, id string) error {
			_, err := b.publish(ctx, &csi.Volume{VolumeId: id}, nodeA)
			return err
		},
		"ControllerExpandVolume": func(ctx context.Context, id string) error {
			_, err := b.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 8 * mib}, Secrets: b.secrets})
			return err
		},
		"ControllerModifyVolume": func(ctx context.Context, id string) error {
			_, err := b.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"qosIOPS": "1000"}, Secrets: b.secrets})
			return err
		},
		"ControllerGetVolume": func(ctx context.Context, id string) error {
			_, err := b.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: id})
			return err
		},
		"ControllerGetVolumeHealth": func(ctx context.Context, id string) error {
			_, err := b.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: id, Secrets: b.secrets})
			return err
		},
		"ValidateVolumeCapabilities": func(ctx context.Context, id string) error {
			_, err := b.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{writer}, Secrets: b.secrets})
			return err
		},
		"CreateSnapshot": func(ctx context.Context, id string) error {
			_, err := b.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: id, Secrets: b.secrets})
			return err
		},
		"GetSnapshot": func(ctx context.Context, id string) error {
			_, err := b.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: id, Secrets: b.secrets})
			return err
		},
		"CreateVolumeGroupSnapshot": func(ctx context.Context, id string) error {
			_, err := b.groupSnapshot(ctx, "g", &csi.Volume{VolumeId: id})
			return err
		},
		"CreateVolume from a volume": func(ctx context.Context, id string) error {
			req := b.request("pvc-9", 4*mib)
			req.VolumeContentSource = fromVolume(&csi.Volume{VolumeId: id})
			_, err := b.CreateVolume(ctx, req)
			return err
		},
		"CreateVolume from a snapshot": func(ctx context.Context, id string) error {
			req := b.request("pvc-9", 4*mib)
			req.VolumeContentSource = fromSnapshot(&csi.Snapshot{SnapshotId: id})
			_, err := b.CreateVolume(ctx, req)
			return err
		},
	}
}

// deletionsByID returns calls that succeed if no object can have the given id.
func deletionsByID(b *testController) map[string]func(ctx context.Context, id string) error {
	return map[string]func(ctx context.Context, id string) error{
		"DeleteVolume":              func(ctx context.Context, id string) error { return b.delete(ctx, id) },
		"ControllerUnpublishVolume": func(ctx context.Context, id string) error { return b.unpublish(ctx, id, nodeA) },
		"DeleteSnapshot": func(ctx context.Context, id string) error {
			_, err := b.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id, Secrets: b.secrets})
			return err
		},
	}
}

// An id that this driver cannot have assigned names no object. If the target in an id is not
// configured, the error names the target, even if the call deletes the object.
func TestUnknownIDsAreRejected(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	b.withCredentials(t)
	id := uuid.NewString()
	for name, call := range callsByID(b) {
		drivertest.RequireCode(t, codes.NotFound, driver.Status(call(t.Context(), "not/an id")))
		require.ErrorIs(t, call(t.Context(), "t0:"+id), volume.ErrNotFound, name)
		require.ErrorContains(t, call(t.Context(), "t9:"+id), "t9", name)
	}
	for name, call := range deletionsByID(b) {
		require.NoError(t, call(t.Context(), "not/an id"), name)
		require.NoError(t, call(t.Context(), "t0:"+id), name)
		require.ErrorContains(t, call(t.Context(), "t9:"+id), "t9", name)
	}
	assert.Empty(t, b.targets[0].lvols(t))
	assert.Empty(t, b.targets[0].exports(t))
}

// Commands that use the controller's own credentials fail without these credentials, and for a
// target that is not configured.
func TestOwnReadsNeedCredentialsAndKnownTargets(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	ctx, id := t.Context(), request.VolumeID{Target: "t0", UUID: uuid.NewString()}
	reads := map[string]func(id request.VolumeID) error{
		"Inspect":   func(id request.VolumeID) error { _, err := b.Inspect(ctx, id, nodeA); return err },
		"Allocated": func(id request.VolumeID) error { _, err := b.Allocated(ctx, id, ""); return err },
		"FindNamed": func(id request.VolumeID) error { _, _, err := b.FindNamed(ctx, id, "s", "v"); return err },
		"Inventory": func(id request.VolumeID) error {
			_, err := b.Inventory(ctx, []string{id.Target}, time.Minute)
			return err
		},
		"InventoryOfSnapshots": func(id request.VolumeID) error {
			_, err := b.InventoryOfSnapshots(ctx, []string{id.String()}, time.Minute)
			return err
		},
	}
	ofAll := map[string]func() error{
		"InventoryOfFencedNodes": func() error { _, err := b.InventoryOfFencedNodes(ctx, time.Minute); return err },
		"DoctorTargets":          func() error { _, err := b.DoctorTargets(); return err },
		"GetCapacity":            func() error { _, err := b.GetCapacity(ctx, &csi.GetCapacityRequest{}); return err },
		"ListVolumes":            func() error { _, err := b.ListVolumes(ctx, &csi.ListVolumesRequest{}); return err },
	}
	for name, read := range reads {
		require.Error(t, read(id), name)
		require.ErrorContains(t, read(id), "SPDKCSI_SECRET", name)
	}
	for name, read := range ofAll {
		require.ErrorContains(t, read(), "SPDKCSI_SECRET", name)
	}
	b.withCredentials(t)
	unknown := id
	unknown.Target = "t9"
	for name, read := range reads {
		require.ErrorContains(t, read(unknown), "t9", name)
	}
	for name, read := range ofAll {
		require.NoError(t, read(), name)
	}
	snapshot, found, err := b.FindNamed(ctx, id, "s", "v")
	require.NoError(t, err)
	assert.Empty(t, snapshot+found)
}

// CreateVolume does not return a volume that another call is deleting.
func TestVolumeBeingDeletedIsNotReturned(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	claim := b.locks.Claim()
	require.NoError(t, claim.Take(strings.TrimPrefix(v.GetVolumeId(), "t0:")))
	_, err := b.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err))
	claim.Release()
	assert.Equal(t, v.GetVolumeId(), b.create(t, "pvc-1", 4*mib).GetVolumeId())
}

// If a request lists a member of a group snapshot twice, the group contains that member only once.
func TestRepeatedSnapshotIDsCountOnce(t *testing.T) {
	b, x := newObjects(t)
	ids := memberIDsOf(x.group)
	w := b.create(t, "pvc-2", 4*mib)
	g, err := b.groupSnapshot(t.Context(), "group-2", x.volume, w)
	require.NoError(t, err)
	twice := append(append([]string(nil), memberIDsOf(g)[0]), memberIDsOf(g)...)
	resp, err := b.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: twice, Secrets: b.secrets})
	require.NoError(t, err)
	assert.ElementsMatch(t, memberIDsOf(g), memberIDsOf(resp.GetGroupSnapshot()))
	for _, wrong := range [][]string{nil, {"nope"}, {strings.TrimPrefix(ids[0], "t0:")}, {"t1:" + strings.TrimPrefix(ids[0], "t0:")}} {
		_, err = b.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: wrong, Secrets: b.secrets})
		drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err))
	}
}

// Only ids that formatGroupID can return are ids of group snapshots. Deleting a group snapshot with
// any other id succeeds and changes nothing.
func TestGroupIDsAreParsed(t *testing.T) {
	b, x := newObjects(t)
	one := x.group.GetGroupSnapshotId()
	id, target, ok := parseGroupID(one)
	require.True(t, ok)
	assert.Equal(t, "t0", target)
	assert.Equal(t, one, formatGroupID(target, id))
	assert.False(t, id.Several())
	for _, text := range []string{"", "t0", "t0:", strings.TrimPrefix(one, "t0:"), "not a name:" + strings.TrimPrefix(one, "t0:"), one + "x", ":" + one} {
		_, _, ok := parseGroupID(text)
		assert.False(t, ok, "%q", text)
		_, err := b.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: text, SnapshotIds: memberIDsOf(x.group), Secrets: b.secrets})
		require.Error(t, err, "%q", text)
		if text != "" {
			require.NoError(t, b.deleteGroup(t.Context(), text, memberIDsOf(x.group)), "%q", text)
		}
	}
	require.Error(t, b.deleteGroup(t.Context(), "", memberIDsOf(x.group)))
	_, err := b.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: one, SnapshotIds: memberIDsOf(x.group), Secrets: b.secrets})
	require.NoError(t, err, "nothing was deleted")
}

// Targets are checked at the configured interval, if the controller has credentials.
func TestChecksAreDueAtTheConfiguredInterval(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	b.withCredentials(t)
	b.Controller.targets.check = time.Hour
	assert.False(t, b.checkDue(time.Hour-1))
	assert.True(t, b.checkDue(time.Hour))
	b.credentialsFile = ""
	assert.False(t, b.checkDue(time.Hour))
	b.withCredentials(t)
	b.Controller.targets.check = 0
	assert.False(t, b.checkDue(time.Hour), "checks are off")
}

type lateError struct{ late bool }

func (e lateError) Error() string { return "an error with a local port" }
func (e lateError) Timeout() bool { return e.late }

// The cause of a failed connection is the same text for each attempt.
func TestCausesAreTheSameForEachAttempt(t *testing.T) {
	at := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	for want, err := range map[string]error{
		"connection refused":                            syscall.ECONNREFUSED,
		"connection closed by the proxy or the network": net.ErrClosed,
		"no route to the host":                          syscall.ENETUNREACH,
		"no such host name":                             &net.DNSError{Err: "no such host", Server: "10.0.0.1", IsNotFound: true},
		"the host name cannot be resolved now":          &net.DNSError{Err: "server misbehaving", Server: "10.0.0.1"},
		"no response in time":                           lateError{true},
		"read: broken":                                  &net.OpError{Op: "read", Source: &net.TCPAddr{Port: 40001}, Err: errors.New("broken")},
		"the certificate is valid only from 2026-11-28T00:00:00Z until 2026-11-28T01:00:00Z": x509.CertificateInvalidError{
			Cert: &x509.Certificate{NotBefore: at, NotAfter: at.Add(time.Hour)}, Reason: x509.Expired,
		},
	} {
		assert.Equal(t, want, cause(fmt.Errorf("x: %w", err)), "%T", err)
	}
	assert.Equal(t, "no route to the host", cause(syscall.EHOSTUNREACH))
	assert.Equal(t, "an error with a local port", cause(lateError{}))
	for _, late := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		assert.Equal(t, "no response in time", cause(late))
	}
	invalid := x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.NotAuthorizedToSign}
	assert.Equal(t, invalid.Error(), cause(invalid))
}
