package doctor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Doctor counts the members of a group on all of its targets. It does not report the group if one
// of these targets cannot be read.
func TestGroupsOnSeveralTargetsAreChecked(t *testing.T) {
	simulatedOnly(t)
	first, second := newFixture(t, export.TCP), newFixture(t, export.TCP)
	take := func(f *fixture, source, group string) {
		t.Helper()
		v := f.create(t, source)
		_, err := f.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v.UUID, SnapshotName: "snap.abcdefghijkl." + strings.ReplaceAll(v.UUID, "-", "") + "." + group})
		require.NoError(t, err)
	}
	const whole, half = "000000010yzb", "000000020yzb" // each has two members, on several targets
	take(first, "pvc-1", whole)
	take(second, "pvc-2", whole)
	take(first, "pvc-3", half)
	e := examinationOf(first.Service, second.Service)
	found := run(t, e)
	require.Len(t, found, 1)
	assert.Equal(t, doctor.HalfMade, found[0].Kind)
	assert.Contains(t, found[0].Object, half)
	assert.Contains(t, found[0].Problem, "only 1 of its 2 snapshots exist")

	e.Partial = true
	assert.Empty(t, run(t, e), "the other members may be on targets that were not read")
	e.Partial = false
	require.NoError(t, second.sim.Close())
	found = run(t, e)
	require.Len(t, found, 1)
	assert.Equal(t, doctor.Unreachable, found[0].Kind)
}
