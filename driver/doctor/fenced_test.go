package doctor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Doctor reports a fenced node as a single finding, which describes how to lift the fence. It does
// not report exports that have lost their hosts because of the fence.
func TestFencedNodeIsFound(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			f := newFixture(t, tr)
			ctx, host := t.Context(), drivertest.MultipathHost("worker-3")
			handle := func(uuid string) string { return request.VolumeID{Target: "t0", UUID: uuid}.String() }
			used, idle, half := f.create(t, "used"), f.create(t, "idle"), f.create(t, "half")
			f.publish(t, used, "worker-3")
			f.publish(t, idle, "worker-3")
			_, err := f.Fence(ctx, host, "worker-3", false)
			require.NoError(t, err)

			known := &doctor.Known{Volumes: map[string]doctor.PV{handle(used.UUID): {Name: "pvc-used"}, handle(idle.UUID): {Name: "pvc-idle"}, handle(half.UUID): {Name: "pvc-half"}}, Attached: map[string][]doctor.Attachment{
				handle(used.UUID): {{Node: "worker-3", Done: true}},
				handle(idle.UUID): {{Node: "worker-3", Done: true}},
			}}
			e := f.examination()
			e.Known = func() (*doctor.Known, error) { return known, nil }
			found := fencesAmong(run(t, e))
			require.Len(t, found, 1)
			fence := found[0]
			assert.Equal(t, doctor.Fenced, fence.Kind)
			assert.Equal(t, "node worker-3", fence.Object)
			assert.Contains(t, fence.Problem, "pvc-idle, pvc-used")
			assert.Contains(t, fence.Command, "spdk-csi unfence --node worker-3 --yes")
			assert.Empty(t, fence.Repair, "only an administrator knows whether the node was restarted")

			e.Known = nil // the controller's check has no list of volumes
			found = fencesAmong(run(t, e))
			require.Len(t, found, 1)
			if tr == export.TCP {
				assert.Equal(t, "node worker-3", found[0].Object)
			} else {
				assert.Contains(t, found[0].Object, host.NQN[strings.LastIndexByte(host.NQN, ':')+1:], "SPDK stores no node's name with an initiator group")
				assert.Contains(t, found[0].Command, "spdk-csi unfence --node")
			}

			// Defects that are unrelated to the fence are still found.
			if tr == export.TCP {
				require.NoError(t, f.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: export.NQN(half.UUID)}))
				e.Known = func() (*doctor.Known, error) { return known, nil }
				kinds := map[doctor.Kind]string{}
				for _, x := range run(t, e) {
					kinds[x.Kind] = x.Object
				}
				assert.Contains(t, kinds[doctor.HalfMade], half.UUID)
			}

			_, err = f.Unfence(ctx, host, false)
			require.NoError(t, err)
			for _, x := range run(t, f.examination()) {
				assert.NotEqual(t, doctor.Fenced, x.Kind)
			}
		})
	}
}

// If a node's name is too long for the mark, the full name is found in Kubernetes' records.
func TestFencedNodeWithALongNameIsFound(t *testing.T) {
	f := newFixture(t, export.TCP)
	name := strings.Repeat("worker-", 10) + "3"
	_, err := f.Fence(t.Context(), drivertest.MultipathHost(name), name, false)
	require.NoError(t, err)
	v := f.create(t, "used")
	handle := request.VolumeID{Target: "t0", UUID: v.UUID}.String()
	e := f.examination()
	found := run(t, e)
	require.Len(t, found, 1)
	assert.NotContains(t, found[0].Command, name[:40]+" ", "the command would not unfence the node")
	e.Known = func() (*doctor.Known, error) {
		return &doctor.Known{Volumes: map[string]doctor.PV{handle: {}}, Attached: map[string][]doctor.Attachment{handle: {{Node: name}}}}, nil
	}
	found = run(t, e)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Command, "--node "+name+" ")
}

// fencesAmong removes the findings about fenced nodes' initiator groups, which are unused until the
// fence is lifted.
func fencesAmong(all []doctor.Finding) (found []doctor.Finding) {
	for _, f := range all {
		if f.Kind != doctor.LeakedGroup {
			found = append(found, f)
		}
	}
	return found
}
