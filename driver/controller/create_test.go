package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// thick returns a request for an empty, thick volume.
func (b *testController) thick(name string, size int64) *csi.CreateVolumeRequest {
	req := b.request(name, size)
	req.Parameters = map[string]string{"thin": "false"}
	return req
}

func (b *testController) copyOf(t *testing.T, id, name string, parameters map[string]string) (*csi.CreateVolumeResponse, error) {
	req := b.request(name, 4*mib)
	req.Parameters = parameters
	req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}}
	return b.CreateVolume(t.Context(), req)
}

func TestCreateTriesTheNextStore(t *testing.T) {
	b := newTestController(t, newSimTargetOf(t, "t0", 100, "lvs0"), newSimTargetOf(t, "t1", 100, "lvs0"), newSimTargetOf(t, "t2", 1000, "lvs0"))
	for i := range 3 { // each volume fits only on the large target
		resp, err := b.CreateVolume(t.Context(), b.thick(fmt.Sprint("pvc-", i), 200*mib))
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(resp.GetVolume().GetVolumeId(), "t2:"))
	}
	_, err := b.CreateVolume(t.Context(), b.thick("pvc-9", 500*mib))
	require.ErrorIs(t, err, volume.ErrNoSpace)
	for _, target := range []string{"t0", "t1", "t2"} {
		assert.ErrorContains(t, err, target)
	}
	req := b.request("pvc-9", 5*mib)
	req.CapacityRange.LimitBytes = 6 * mib
	_, err = b.CreateVolume(t.Context(), req)
	require.ErrorIs(t, err, volume.ErrOutOfRange)
	require.NotErrorIs(t, err, volume.ErrNoSpace)
}

func TestCreateReadsAllTargetsFirst(t *testing.T) {
	small, large := newSimTargetOf(t, "t0", 100, "lvs0"), newSimTargetOf(t, "t1", 1000, "lvs0")
	b := newTestController(t, small, large)
	byHand := spdkrpc.BdevLvolCreateParams{LvolName: "pvc-1", LvsName: new("lvs0"), SizeInMiB: 4, ThinProvision: new(true)}
	_, err := small.rpc.BdevLvolCreate(t.Context(), byHand)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(b.create(t, "pvc-1", 4*mib).GetVolumeId(), "t0:"))
	_, err = large.rpc.BdevLvolCreate(t.Context(), byHand)
	require.NoError(t, err)
	_, err = b.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	require.ErrorIs(t, err, volume.ErrIncompatible, "two volumes have the name")
	require.ErrorContains(t, err, "on the targets t0 and t1")

	small.Crash()
	for _, name := range []string{"pvc-1", "pvc-2"} {
		_, err = b.CreateVolume(t.Context(), b.request(name, 4*mib))
		require.Error(t, err, name)
		assert.True(t, errors.Is(err, spdkrpc.Unreachable) || errors.Is(err, spdkrpc.OutcomeUnknown), err)
	}
	assert.Len(t, large.lvols(t), 1, "nothing was created")
}

// If the outcome of a creation is unknown, CreateVolume does not try another lvstore, because the
// volume may still be created in the first one.
func TestCreateStopsAfterUnknownOutcome(t *testing.T) {
	targets := []*simTarget{newSimTargetOf(t, "t0", 1000, "lvs0"), newSimTargetOf(t, "t1", 1000, "lvs0")}
	for _, s := range targets {
		// The lvstore is filled just before the volume is created, and the reply is lost.
		s.instead = map[string]func(){"bdev_lvol_create": func() {
			_, err := s.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "filler", LvsName: new("lvs0"), SizeInMiB: 900})
			assert.NoError(t, err)
		}}
	}
	b := newTestController(t, targets...)
	_, err := b.CreateVolume(t.Context(), b.thick("pvc-1", 200*mib))
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	require.NotErrorIs(t, err, volume.ErrNoSpace)
	assert.Len(t, append(targets[0].lvols(t), targets[1].lvols(t)...), 1, "only the filler exists; the other lvstore was not tried")
}

func TestSameNameWithDifferentParametersIsRefused(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	b.create(t, "pvc-1", 4*mib)
	_, err := b.CreateVolume(t.Context(), b.thick("pvc-1", 4*mib))
	require.ErrorIs(t, err, volume.ErrIncompatible)
}

// A clone is created in its source's lvstore. If the class requires another lvstore or target, the
// call is refused before anything is created.
func TestCloneIsCreatedInSourceLvstore(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	source := b.create(t, "pvc-1", 4*mib)
	for says, parameters := range map[string]map[string]string{
		`target is "t1"`: {"target": "t1"}, `lvstore is "lvs1"`: {"lvstore": "lvs1"}, "thin is false": {"thin": "false"},
	} {
		_, err := b.copyOf(t, source.GetVolumeId(), "pvc-2", parameters)
		require.ErrorIs(t, err, class.ErrParameter)
		require.ErrorContains(t, err, says)
	}
	_, err := b.copyOf(t, "t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d", "pvc-2", map[string]string{"lvstore": "lvs0"})
	require.ErrorIs(t, err, volume.ErrNotFound)
	assert.Equal(t, []string{"lvs0/pvc-1"}, target.lvols(t), "nothing was created")

	made, err := b.copyOf(t, source.GetVolumeId(), "pvc-2", map[string]string{"target": "t0", "lvstore": "lvs0"})
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(made.GetVolume().GetVolumeId(), "t0:"))
	assert.Contains(t, target.lvols(t), "lvs0/pvc-2")
	assert.NotEqual(t, source.GetVolumeId(), made.GetVolume().GetVolumeId())
}
