package node

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/request"
)

// A new record of a staged volume replaces the old record. Files that are not links are ignored,
// and records that cannot be read, written or removed are reported.
func TestUnusableStagedRecordsAreReported(t *testing.T) {
	s := stagedVolumes{dir: filepath.Join(t.TempDir(), "staged"), boot: "boot"}
	all, err := s.all()
	require.NoError(t, err)
	assert.Empty(t, all, "none was recorded yet")
	require.NoError(t, s.remove(volID), "there is none")
	for _, staging := range []string{"/first", "/second", "/second"} {
		require.NoError(t, s.add(volID, staging))
		all, err = s.all()
		require.NoError(t, err)
		assert.Equal(t, map[string]string{volID: staging}, all)
	}
	require.NoError(t, os.WriteFile(s.path("no link"), nil, 0o600))
	all, err = s.all()
	require.NoError(t, err)
	assert.Len(t, all, 1)
	require.NoError(t, s.remove(volID))
	require.NoError(t, os.MkdirAll(filepath.Join(s.path(volID), "x"), 0o700))
	require.Error(t, s.remove(volID), "it is a directory with contents")
	require.Error(t, s.add(volID, "/first"))

	s.boot = "no link/below" // the parent is a file
	s.dir = filepath.Join(s.dir, "boot")
	require.Error(t, s.add(volID, "/first"))
	_, err = s.all()
	require.ErrorContains(t, err, "list the volumes that are staged")
}

// If a volume cannot be recorded as staged or unstaged, the call logs the error and continues.
func TestUnrecordedVolumesAreLogged(t *testing.T) {
	n, f := newFakeNode(t)
	logs := &drivertest.Log{}
	n.log = slog.New(slog.NewTextHandler(logs, nil))
	n.staged = stagedVolumes{dir: filepath.Join(f.state, "file"), boot: "boot"}
	require.NoError(t, os.WriteFile(n.staged.dir, nil, 0o600))
	_, err := n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.NoError(t, err)
	assert.Contains(t, logs.String(), "it is not monitored")
	_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	require.NoError(t, err)
	assert.Contains(t, logs.String(), "monitored until its record is removed")
	require.Error(t, monitored{n}.Adopt([]string{stagePath(f.staging, volID)}))
}

// Of many targets, only the first eight are named.
func TestOnlySomeTargetsAreNamed(t *testing.T) {
	var names []string
	for i := range 8 {
		names = append([]string{fmt.Sprint("t", i)}, names...)
	}
	assert.Equal(t, "t0, t1, t2, t3, t4, t5, t6, t7", firstOf(names))
	assert.Equal(t, "s, t0, t1, t2, t3, t4, t5, t6 and 1 more", firstOf(append(names, "s")))
	assert.Equal(t, "a", firstOf([]string{"a"}))
}

// The description of a replicated volume must be complete and match the volume's id.
func TestIncompleteReplicatedContextsAreRejected(t *testing.T) {
	replica := request.Replica{Number: 0, Server: "server-0", UUID: replicaUUIDs[0], Export: map[string]string{
		"targetType": "TCP", "targetAddr": "192.0.2.1", "targetPort": "4420", "nqn": "nqn.2020-04.io.spdk.csi:replica:x", "nsUUID": replicaUUIDs[0],
	}}
	second := replica
	second.Number, second.Server, second.UUID = 1, "server-1", replicaUUIDs[1]
	complete := request.Replicated{UID: "uid", Generation: 1, SizeBytes: 1 << 20, Replicas: []request.Replica{replica, second}}
	read := func(id string, r request.Replicated, options map[string]string) (any, error) {
		v, err := readReplicated(id, nodeA, options, map[string]string{request.KeyReplicated: r.Format()}, nil)
		if v == nil {
			return nil, err
		}
		return v, err
	}
	got, err := readReplicated(replicatedID, nodeA, map[string]string{"ctrl_loss_tmo": "5", "keep_alive_tmo": "7", "other": "x"}, map[string]string{request.KeyReplicated: complete.Format()}, nil)
	require.NoError(t, err)
	require.Len(t, got.Replicas, 2)
	assert.Equal(t, "uid", got.UID)
	assert.Equal(t, map[string]string{"ctrl_loss_tmo": "-1", "fast_io_fail_tmo": "-1", "keep_alive_tmo": "7"}, got.Replicas[1].Export.Options)

	plain, err := readReplicated(volID, nodeA, nil, nil, nil)
	require.NoError(t, err)
	assert.Nil(t, plain)
	_, err = readReplicated(volID, nodeA, map[string]string{request.KeyReplicated: complete.Format()}, nil, nil)
	require.ErrorContains(t, err, "attachRequired", "the volume was not published")
	for name, c := range map[string]struct {
		id     string
		change func(r *request.Replicated)
		says   string
	}{
		"malformed id":         {"x/y", func(*request.Replicated) {}, "x/y"},
		"id of a plain volume": {volID, func(*request.Replicated) {}, volID},
		"no witness":           {replicatedID, func(r *request.Replicated) { r.UID = "" }, "no witness or generation"},
		"witness with a slash": {replicatedID, func(r *request.Replicated) { r.UID = "a/b" }, "no witness or generation"},
		"no generation":        {replicatedID, func(r *request.Replicated) { r.Generation = 0 }, "no witness or generation"},
		"no address":           {replicatedID, func(r *request.Replicated) { delete(r.Replicas[1].Export, "targetAddr") }, "replica 1 on server server-1"},
		"iSCSI": {replicatedID, func(r *request.Replicated) {
			r.Replicas[1].Export = map[string]string{"targetType": "iscsi", "targetAddr": "192.0.2.1", "targetPort": "3260", "iqn": "iqn.2016-06.io.spdk:x", "nsUUID": replicaUUIDs[0]}
		}, "replicas need NVMe-oF"},
	} {
		r := complete
		r.Replicas = []request.Replica{replica, second}
		r.Replicas[1].Export = maps.Clone(replica.Export)
		c.change(&r)
		v, err := read(c.id, r, nil)
		require.ErrorContains(t, err, c.says, name)
		assert.Nil(t, v, name)
	}
}

// A volume counts as connected unless the connector reports that it is not. A replicated volume
// always counts as connected.
func TestUnknownConnectionsCountAsConnected(t *testing.T) {
	r := newReplicatedNode(t)
	_, err := r.NodeStageVolume(t.Context(), r.stageRequest(false))
	require.NoError(t, err)
	record, found, err := readRecord(r.f.staging, replicatedID)
	require.NoError(t, err)
	require.True(t, found)
	assert.True(t, r.isConnected(t.Context(), record))

	n, f := newFakeNode(t)
	plain := stageRecord{VolumeID: volID, Export: connect.Export{Transport: connect.TCP, NQN: "nqn.x"}}
	assert.False(t, n.isConnected(t.Context(), plain))
	f.connected[plain.Export.Target()] = true
	assert.True(t, n.isConnected(t.Context(), plain))
}

// A failure to list or remove marks of used volumes is reported.
func TestUnusableMarksOfUsedVolumesAreReported(t *testing.T) {
	u := usedVolumes{dir: t.TempDir()}
	for i := range 3 {
		require.NoError(t, os.MkdirAll(filepath.Join(u.dir, fmt.Sprint(i), "x"), 0o700))
	}
	require.NoError(t, u.prune(3))
	require.Error(t, u.prune(1))
	u.dir = filepath.Join(u.dir, "missing")
	require.Error(t, u.prune(1))
}

// A volume grows even if its staging path is unknown or has no record. The connection is then not
// rescanned, because its export is unknown.
func TestVolumesWithoutARecordGrow(t *testing.T) {
	n, f := newFakeNode(t)
	_, err := n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.NoError(t, err)
	target := filepath.Join(t.TempDir(), "target")
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(writer, target))
	require.NoError(t, err)
	for _, staging := range []string{"", t.TempDir()} {
		f.log = nil
		grown, err := n.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
			VolumeId: volID, VolumePath: target, StagingTargetPath: staging, CapacityRange: &csi.CapacityRange{RequiredBytes: 8192},
		})
		require.NoError(t, err)
		assert.EqualValues(t, 42, grown.GetCapacityBytes())
		assert.Equal(t, []string{"grow"}, f.log)
	}
}
