package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// limitsOf reads a volume's limits on its target.
func (s *simTarget) limitsOf(t *testing.T, v *csi.Volume) spdkrpc.BdevRateLimits {
	t.Helper()
	bdevs, err := s.rpc.BdevGetBdevs(t.Context(), spdkrpc.BdevGetBdevsParams{Name: new(v.GetVolumeId()[len(s.name)+1:])})
	require.NoError(t, err)
	require.Len(t, bdevs, 1)
	return bdevs[0].AssignedRateLimits
}

func (b *testController) modify(t *testing.T, id string, mutable map[string]string) error {
	t.Helper()
	_, err := b.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: mutable, Secrets: b.secrets})
	return err
}

// A volume is created with the I/O limits of its class, and its limits can be changed while it is
// attached.
func TestLimitsAreSetAndChanged(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	req := b.request("pvc-1", 4*mib)
	req.Parameters = map[string]string{"qosIOPS": "5000", "qosReadMiBPerSecond": "7"}
	req.MutableParameters = map[string]string{"qosReadMiBPerSecond": "8"}
	made, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	v := made.GetVolume()
	assert.Equal(t, spdkrpc.BdevRateLimits{RWIOsPerSec: 5000, RMbytesPerSec: 8}, target.limitsOf(t, v))
	_, err = b.CreateVolume(t.Context(), req)
	require.NoError(t, err, "again")

	_, err = b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	require.NoError(t, b.modify(t, v.GetVolumeId(), map[string]string{"qosIOPS": "0", "qosMiBPerSecond": "100", "qosWriteMiBPerSecond": "9"}))
	want := spdkrpc.BdevRateLimits{RWMbytesPerSec: 100, RMbytesPerSec: 8, WMbytesPerSec: 9}
	assert.Equal(t, want, target.limitsOf(t, v), "limits that are not named stay")
	require.NoError(t, b.modify(t, v.GetVolumeId(), map[string]string{"qosMiBPerSecond": "100"}), "again")
	require.NoError(t, b.modify(t, v.GetVolumeId(), nil))
	assert.Equal(t, want, target.limitsOf(t, v))

	target.loseReplyOf("bdev_set_qos_limit")
	_, err = drivertest.Retry(driver.Code, func() (any, error) {
		return nil, b.modify(t, v.GetVolumeId(), map[string]string{"qosMiBPerSecond": "50"})
	})
	require.NoError(t, err)
	want.RWMbytesPerSec = 50
	assert.Equal(t, want, target.limitsOf(t, v))
}

// If a volume's limits cannot be set, CreateVolume does not return the volume; a retry sets the
// limits.
func TestVolumeIsNotReturnedWithoutItsLimits(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	target.instead = map[string]func(){"bdev_set_qos_limit": func() {}}
	req := b.request("pvc-1", 4*mib)
	req.Parameters = map[string]string{"qosIOPS": "5000"}
	_, err := b.CreateVolume(t.Context(), req)
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err))
	target.mu.Lock()
	delete(target.instead, "bdev_set_qos_limit")
	target.mu.Unlock()
	made, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, uint64(5000), target.limitsOf(t, made.GetVolume()).RWIOsPerSec)
}

// SPDK v25.09 and later refuse to change the limits of a volume that is not in use. The error makes
// the sidecar retry the call, and tells users that the call will succeed once the volume is
// attached.
func TestLimitsOfAnUnusedVolumeChangeWhenItIsAttached(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	v := b.create(t, "pvc-1", 4*mib)
	require.NoError(t, b.modify(t, v.GetVolumeId(), map[string]string{"qosIOPS": "5000"}), "the first limits")
	drivertest.RequireCode(t, codes.Aborted, driver.Status(b.modify(t, v.GetVolumeId(), map[string]string{"qosIOPS": "6000"})), "take effect when it is attached")
	assert.Equal(t, uint64(5000), target.limitsOf(t, v).RWIOsPerSec)
	_, err := b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	require.NoError(t, b.modify(t, v.GetVolumeId(), map[string]string{"qosIOPS": "6000"}))
}

func TestModifyRefusesInvalidRequests(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	s := b.snapshot(t, "s-1", v)
	for name, c := range map[string]struct {
		id      string
		mutable map[string]string
		want    codes.Code
	}{
		"no id":      {"", nil, codes.InvalidArgument},
		"no volume":  {"t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d", map[string]string{"qosIOPS": "1000"}, codes.NotFound},
		"a snapshot": {s.GetSnapshotId(), map[string]string{"qosIOPS": "1000"}, codes.InvalidArgument},
		"value":      {v.GetVolumeId(), map[string]string{"qosIOPS": "1"}, codes.InvalidArgument},
		"key":        {v.GetVolumeId(), map[string]string{"fsType": "ext4"}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.RequireCode(t, c.want, driver.Status(b.modify(t, c.id, c.mutable)))
		})
	}
}
