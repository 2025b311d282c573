package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// setInfo sets the information that the proxy reports about its target. If info is nil, the proxy
// lacks the method.
func (s *simTarget) setInfo(info *spdkrpc.ProxyTargetInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = info
}

// TestRawBlockVolumesRequireAutoExamineOff creates and publishes volumes with and without a
// file system.
func TestRawBlockVolumesRequireAutoExamineOff(t *testing.T) {
	rawBlock := drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, true)
	for name, c := range map[string]struct {
		info    *spdkrpc.ProxyTargetInfo
		refused string
	}{
		"off":                   {&spdkrpc.ProxyTargetInfo{ExaminesVolumes: new(false)}, ""},
		"on":                    {&spdkrpc.ProxyTargetInfo{ExaminesVolumes: new(true)}, "docs/target.md"},
		"on, and accepted":      {&spdkrpc.ProxyTargetInfo{ExaminesVolumes: new(true), Acknowledged: true}, ""},
		"unknown":               {&spdkrpc.ProxyTargetInfo{}, "target.accept_loading_what_hosts_write"},
		"unknown, and accepted": {&spdkrpc.ProxyTargetInfo{Acknowledged: true}, ""},
		"old proxy":             {nil, "upgrade spdk-proxy"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
			before, err := b.createFor(t, "pvc-before", rawBlock)
			require.NoError(t, err)
			b.targets[0].setInfo(c.info)
			v := b.create(t, "pvc-mounted", 4*mib)
			_, err = b.publish(t.Context(), v, nodeA)
			require.NoError(t, err, "with a file system")

			_, created := b.createFor(t, "pvc-raw", rawBlock)
			copied := b.request("pvc-copy", 4*mib)
			copied.VolumeCapabilities, copied.VolumeContentSource = []*csi.VolumeCapability{rawBlock}, fromVolume(before)
			_, cloned := b.CreateVolume(t.Context(), copied)
			cloned = driver.Status(cloned)
			published := b.publishFor(t, before, nodeA, rawBlock)
			for call, err := range map[string]error{"create": created, "clone": cloned, "publish": published} {
				if c.refused == "" {
					require.NoError(t, err, call)
				} else {
					drivertest.RequireCode(t, codes.FailedPrecondition, err, c.refused)
				}
			}
			if c.refused != "" {
				require.ElementsMatch(t, []string{"lvs0/pvc-before", "lvs0/pvc-mounted"}, b.targets[0].lvols(t), "nothing was made")
			}
			require.NoError(t, b.unpublish(t.Context(), before.GetVolumeId(), nodeA))
			require.NoError(t, b.delete(t.Context(), before.GetVolumeId()))
		})
	}
}

// A raw block volume is created on a target that does not load lvstores from volumes, if such a
// target exists.
func TestRawBlockVolumesAvoidExaminingTargets(t *testing.T) {
	t0, t1 := newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0")
	t0.setInfo(&spdkrpc.ProxyTargetInfo{ExaminesVolumes: new(true)})
	b := newTestController(t, t0, t1)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		_, err := b.createFor(t, name, drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, true))
		require.NoError(t, err)
	}
	require.Empty(t, t0.lvols(t))
	require.Len(t, t1.lvols(t), 6)
}
