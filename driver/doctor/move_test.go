package doctor_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
)

// Doctor recognizes the objects that spdk-csi move leaves behind, and reports the commands that
// finish or abandon the move.
func TestMoveLeftoversAreIdentified(t *testing.T) {
	f := newFixture(t, export.TCP)
	var c cluster
	original := f.create(t, "pvc-original")
	c.pv("pv-original", "t0:"+original.UUID, "8Mi", "Bound")
	c.snapshot("t0:" + uuid.NewString()) // the list contains snapshots
	gone := uuid.NewString()
	copied, source := f.create(t, request.MoveCopyName(original.UUID)), f.create(t, request.MoveSourceName(original.UUID))
	lonely, other := f.create(t, request.MoveCopyName(gone)), f.create(t, "move-my-data")
	base, err := f.Snapshot(t.Context(), request.MoveBaseName(original.UUID), original.UUID)
	require.NoError(t, err)
	f.publish(t, copied, request.MovePrepareNode(original.UUID))

	examine := func() map[string]doctor.Finding {
		got := map[string]doctor.Finding{}
		for _, x := range run(t, with(f.examination(), c.known(t))) {
			got[x.Volume] = x
		}
		return got
	}
	got := examine()
	require.Len(t, got, 5)
	id := "t0:" + original.UUID
	for volume, texts := range map[string][]string{
		copied.UUID: {"the copy that spdk-csi move made of volume " + id, "move --volume " + id + " --keep-original; then spdk-proxy call nvmf_delete_subsystem nqn=" + export.NQN(copied.UUID), "--delete-volume t0:" + copied.UUID},
		source.UUID: {"the temporary volume", id, "--keep-original"},
		base.UUID:   {"the snapshot that spdk-csi move --prepare took", id, "--keep-original"},
		lonely.UUID: {"which no target has", "may be the only one", "--delete-volume t0:" + lonely.UUID},
	} {
		x := got["t0:"+volume]
		assert.Equal(t, doctor.Move, x.Kind, x.Object)
		assert.Empty(t, x.Repair)
		for _, text := range texts {
			assert.Contains(t, x.Problem+" "+x.Command, text, x.Object)
		}
	}
	assert.Equal(t, doctor.Orphan, got["t0:"+other.UUID].Kind, "an administrator chose the name")

	// If another host uses the copy, the reported command does not delete its export.
	require.NoError(t, f.Unexport(t.Context(), copied.UUID, nil))
	f.publish(t, copied, "n1")
	x := examine()["t0:"+copied.UUID]
	assert.NotContains(t, x.Command, "nvmf_delete_subsystem")
	targets := f.examination().Targets
	require.Error(t, doctor.DeleteOrphans([]doctor.Finding{got["t0:"+base.UUID]}, targets, []string{"t0:" + base.UUID}), "--delete-volume deletes no snapshots")
	require.NoError(t, doctor.DeleteOrphans([]doctor.Finding{x}, targets, []string{x.Volume}))
}
