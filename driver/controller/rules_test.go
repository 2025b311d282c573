package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/driver/witness"
)

// A capacity range without a minimum means the default size, or the limit if the limit is smaller.
func TestSizesFollowTheCapacityRange(t *testing.T) {
	const byDefault, gib = 1 << 30, int64(1 << 30)
	for _, c := range []struct {
		least, most         int64
		wantLeast, wantMost int64
		want                error
	}{
		{0, 0, gib, 0, nil}, {1, 0, 1, 0, nil}, {5, 5, 5, 5, nil}, {6, 5, 0, 0, volume.ErrOutOfRange},
		{-1, 0, 0, 0, request.ErrInvalid}, {0, -1, 0, 0, request.ErrInvalid},
		{maxSize, 0, maxSize, 0, nil}, {maxSize + 1, 0, 0, 0, volume.ErrOutOfRange},
		{0, 2 * gib, gib, 2 * gib, nil}, {0, gib, gib, gib, nil}, {0, 3*mib + 5, 3 * mib, 3*mib + 5, nil}, {0, mib, mib, mib, nil}, {0, mib - 1, 1, mib - 1, nil},
	} {
		least, most, err := sizes(&csi.CapacityRange{RequiredBytes: c.least, LimitBytes: c.most}, byDefault)
		require.ErrorIs(t, err, c.want, "%+v", c)
		assert.Equal(t, []int64{c.wantLeast, c.wantMost}, []int64{least, most}, "%+v", c)
	}
}

// The UUID of a file system can be set only for xfs and btrfs, whether the class or the request
// names the type.
func TestFilesystemUUIDIsRejectedForExt4(t *testing.T) {
	mounted := func(fsType string) []*csi.VolumeCapability {
		return []*csi.VolumeCapability{{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}}}}
	}
	for _, c := range []struct {
		class, requested string
		ok               bool
	}{{"", "", false}, {"ext4", "", false}, {"xfs", "", true}, {"xfs", "ext4", false}, {"ext4", "xfs", true}, {"", "btrfs", true}} {
		err := checkFilesystem(class.Class{FSType: c.class, VolumeUUID: true}, mounted(c.requested))
		assert.Equal(t, c.ok, err == nil, "%+v: %v", c, err)
		require.NoError(t, checkFilesystem(class.Class{FSType: c.class}, mounted(c.requested)))
	}
}

func siteOf(id replica.ID, err error) *site {
	return &site{id: id, place: witness.Place{Server: fmt.Sprint("t", id)}, err: err}
}

// A used volume needs one replica with every write; a new volume needs all of its replicas. An
// error that a retry cannot resolve is always returned.
func TestEnoughReplicasAreReached(t *testing.T) {
	logs := &drivertest.Log{}
	c := &Controller{log: slog.New(slog.NewTextHandler(logs, nil))}
	down := errors.New("no response")
	both := replica.SetOf(0, 1)
	for name, tt := range map[string]struct {
		created bool
		inSync  replica.Set
		errs    [2]error
		want    error
		warns   bool
	}{
		"new, both":               {},
		"new, one":                {errs: [2]error{nil, down}, want: request.ErrNoReplica},
		"new, none":               {errs: [2]error{down, down}, want: request.ErrNoReplica},
		"used, both":              {created: true, inSync: both},
		"used, the current one":   {created: true, inSync: replica.SetOf(0), errs: [2]error{nil, down}, warns: true},
		"used, the older one":     {created: true, inSync: replica.SetOf(0), errs: [2]error{down, nil}, want: request.ErrNoReplica},
		"used, one of two":        {created: true, inSync: both, errs: [2]error{down, nil}, warns: true},
		"used, none":              {created: true, inSync: both, errs: [2]error{down, down}, want: request.ErrNoReplica},
		"fenced publication":      {created: true, inSync: both, errs: [2]error{nil, replica.ErrFenced}, want: replica.ErrFenced},
		"fenced node":             {created: true, inSync: both, errs: [2]error{export.ErrFenced, nil}, want: export.ErrFenced},
		"exported by others":      {created: true, inSync: both, errs: [2]error{nil, export.ErrForeign}, want: export.ErrForeign},
		"target without replicas": {created: true, inSync: both, errs: [2]error{nil, export.ErrNotReplicable}, want: export.ErrNotReplicable},
	} {
		before := len(logs.String())
		err := c.enough(t.Context(), replica.Witness{Created: tt.created, Replicas: both, InSync: tt.inSync}, []*site{siteOf(0, tt.errs[0]), siteOf(1, tt.errs[1])})
		require.ErrorIs(t, err, tt.want, name)
		if errors.Is(tt.want, request.ErrNoReplica) {
			require.ErrorIs(t, err, down, name)
			for i, e := range tt.errs {
				if e != nil {
					assert.ErrorContains(t, err, fmt.Sprint("t", i), name)
				}
			}
		}
		assert.Equal(t, tt.warns, len(logs.String()) > before, name)
	}
	servers, err := failures([]*site{siteOf(1, down), siteOf(0, down), siteOf(2, nil)})
	require.ErrorIs(t, err, down)
	assert.Equal(t, "t0 and t1", servers)
	servers, err = failures([]*site{siteOf(0, nil)})
	require.NoError(t, err)
	assert.Empty(t, servers)
}

// A readable replica must be one of the replicas that the volume was created with.
func TestReplicasMustMatchTheVolumeContext(t *testing.T) {
	made := request.Replicated{Replicas: []request.Replica{{Number: 0, Server: "t0", UUID: "a"}, {Number: 1, Server: "t1", UUID: "b"}}}
	found := func() []*site {
		all := []*site{siteOf(0, nil), siteOf(1, nil)}
		all[0].replica.UUID, all[1].replica.UUID = "a", "b"
		return all
	}
	require.NoError(t, sameReplicas(found(), made))
	for name, change := range map[string]func(s *site){
		"UUID": func(s *site) { s.replica.UUID = "c" }, "server": func(s *site) { s.place.Server = "t2" }, "number": func(s *site) { s.id = 2 },
	} {
		sites := found()
		change(sites[1])
		require.ErrorIs(t, sameReplicas(sites, made), volume.ErrIncompatible, name)
	}
	unread := found()
	unread[1].replica.UUID, unread[1].err = "", errors.New("no response")
	require.NoError(t, sameReplicas(unread, made))
}

// A volume is measured while it is published to at least one node and has recently been confirmed.
func TestPublishedVolumesAreMeasured(t *testing.T) {
	m := &measured{}
	none := map[string]string{}
	m.note("t0", volume.Volume{UUID: "a", Name: "pvc-a"}, nodeA, none)
	m.note("t0", volume.Volume{UUID: "a", Name: "pvc-a"}, nodeB, none)
	m.note("t1", volume.Volume{UUID: "b", Name: "pvc-b"}, nodeA, none)
	assert.Equal(t, map[string][]metrics.VolumeIO{"t0": {{Target: "t0", Volume: "a", Lvol: "pvc-a"}}, "t1": {{Target: "t1", Volume: "b", Lvol: "pvc-b"}}}, m.list())
	m.forget("a", nodeA)
	m.forget("c", nodeA)
	assert.Len(t, m.list(), 2, "it is still published to the other node")
	m.forget("a", nodeB)
	assert.Len(t, m.list(), 1)
	m.note("t0", volume.Volume{UUID: "a"}, nodeA, none)
	m.note("t0", volume.Volume{UUID: "a"}, nodeB, none)
	m.forget("a", "")
	assert.Len(t, m.list(), 1, "it is unpublished from all nodes")
	m.volumes["b"].seen = time.Now().Add(-measuredFor - time.Second)
	assert.Empty(t, m.list())
	assert.Empty(t, m.volumes)
	assert.True(t, m.deny("t0"))
	assert.False(t, m.deny("t0"))
	assert.True(t, m.deny("t1"))
}
