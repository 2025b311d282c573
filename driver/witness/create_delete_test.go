package witness

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/kubernetes"
	"github.com/spdkgate/spdkgate/driver/replica"
)

func TestRepeatedCreateReturnsTheSameWitness(t *testing.T) {
	a, s, _ := started(t)
	r, err := s.Create(t.Context(), volume, placeA, placeB)
	require.NoError(t, err)
	assert.True(t, r.Witness.Created)
	_, err = s.Create(t.Context(), volume, placeA, placeC)
	require.ErrorIs(t, err, ErrOther)
	a.edit(volume, func(o map[string]any) { meta(o)["deletionTimestamp"] = "2026-11-27T00:00:00Z" })
	_, err = s.Create(t.Context(), volume, placeA, placeB)
	require.ErrorIs(t, err, ErrDeleting)
	for _, places := range [][]Place{nil, {placeA, placeB, placeC, {"storage-4", "lvs/x"}}, {{"", "lvs/x"}}, {{"storage-1", "x"}}} {
		a.calls = nil
		_, err = s.Create(t.Context(), "pvc-2", places...)
		require.Error(t, err)
		assert.Empty(t, a.calls)
	}
}

// The number of a removed replica can be reused, so Remove removes the replica from the log first.
func TestRemoveClearsTheLogBeforeTheReplica(t *testing.T) {
	a, s, r := started(t)
	for _, transition := range []func(replica.Witness) (replica.Witness, error){
		dropB,
		func(w replica.Witness) (replica.Witness, error) { return w.Hold(writer, setA) },
		func(w replica.Witness) (replica.Witness, error) { return w.Log(writer, setB) },
	} {
		_, err := s.Change(t.Context(), volume, r.UID, transition)
		require.NoError(t, err)
	}
	a.calls = nil
	a.inject(http.MethodPut, after(func() {}), lostRequest)
	a.inject(http.MethodGet, after(func() {}), after(func() {}))
	a.inject(http.MethodGet, slices.Repeat([]fault{fails(http.StatusServiceUnavailable)}, 20)...)
	_, err := s.Remove(t.Context(), volume, 1, placeB)
	require.ErrorIs(t, err, ErrUnknown)
	a.next = map[string][]fault{}
	got, err := s.Get(t.Context(), volume)
	require.NoError(t, err)
	assert.Equal(t, setAB, got.Witness.Replicas)
	assert.Zero(t, got.Witness.Logged)

	_, err = s.Remove(t.Context(), volume, 1, placeC)
	require.ErrorIs(t, err, ErrOther)
	for range 2 {
		got, err = s.Remove(t.Context(), volume, 1, placeB)
		require.NoError(t, err)
		assert.Equal(t, setA, got.Witness.Replicas)
	}
	_, err = s.Remove(t.Context(), volume, 0, placeA)
	require.ErrorIs(t, err, replica.ErrTransition)

	for range 2 {
		got, err = s.Add(t.Context(), volume, 1, placeC)
		require.NoError(t, err)
		assert.Equal(t, placeC, got.Places[1])
	}
	_, err = s.Add(t.Context(), volume, 1, placeB)
	require.ErrorIs(t, err, replica.ErrTransition)
}

func TestDeletionWithUnknownOutcomeIsReadBack(t *testing.T) {
	for name, faults := range map[string]map[string]fault{
		"request lost":                  {http.MethodDelete: lostRequest, http.MethodPut: lostRequest},
		"response lost":                 {http.MethodDelete: lostResponse, http.MethodPut: lostResponse},
		"published before the deletion": {http.MethodDelete: nil},
	} {
		t.Run(name, func(t *testing.T) {
			a, s, _ := started(t)
			_, err := s.Publish(t.Context(), volume, "")
			require.NoError(t, err)
			published := false
			for method, fault := range faults {
				if published = fault == nil; published {
					fault = after(func() {
						a.edit(volume, func(o map[string]any) {
							o["spec"].(map[string]any)["writer"] = map[string]any{"node": "node-2", "generation": 3}
						})
					})
				}
				a.inject(method, fault)
			}
			err = s.Delete(t.Context(), volume)
			if published {
				require.ErrorIs(t, err, ErrInUse)
				assert.Contains(t, a.objects, volume)
				return
			}
			require.NoError(t, err)
			assert.Empty(t, a.objects)
		})
	}
}

// A deletion is complete only if the API server responds that the object does not exist, not if the
// whole resource is missing.
func TestMissingResourceDefinitionIsNotAMissingWitness(t *testing.T) {
	a, s, r := started(t)
	a.absent = true
	require.ErrorIs(t, s.Delete(t.Context(), volume), ErrNotInstalled)
	_, err := s.Get(t.Context(), volume)
	require.ErrorIs(t, err, ErrNotInstalled)
	require.NotErrorIs(t, err, ErrNotFound)
	_, err = s.Create(t.Context(), volume, placeA, placeB)
	require.ErrorIs(t, err, ErrNotInstalled)
	_, err = s.Change(t.Context(), volume, r.UID, dropB)
	require.ErrorIs(t, err, ErrNotInstalled)
}

func TestAPIServerRefusalsKeepTheirKind(t *testing.T) {
	for code, kind := range map[int]error{http.StatusForbidden: kubernetes.ErrForbidden, http.StatusUnprocessableEntity: kubernetes.ErrInvalid} {
		a, s, r := started(t)
		a.inject(http.MethodPut, fails(code))
		_, err := s.Change(t.Context(), volume, r.UID, dropB)
		require.ErrorIs(t, err, kind)
		require.NotErrorIs(t, err, ErrUnknown)
		assert.Equal(t, []string{"GET /pvc-1", "PUT /pvc-1/status"}, a.calls)
	}
}

// A volume whose deletion has begun remains until its replicas have been deleted, and cannot be in
// use.
func TestBeginDeleteRefusesWitnessInUse(t *testing.T) {
	_, s, _ := created(t)
	_, err := s.BeginDelete(t.Context(), volume)
	require.ErrorIs(t, err, ErrInUse)
	got, err := s.Get(t.Context(), volume)
	require.NoError(t, err)
	assert.False(t, got.Deleting)
	_, err = s.Publish(t.Context(), volume, "")
	require.NoError(t, err)
	for range 2 {
		got, err = s.BeginDelete(t.Context(), volume)
		require.NoError(t, err)
		assert.True(t, got.Deleting)
		assert.Equal(t, placeB, got.Places[1])
	}
	require.NoError(t, s.Delete(t.Context(), volume))
	_, err = s.BeginDelete(t.Context(), volume)
	require.ErrorIs(t, err, ErrNotFound)
}

// If the API server's response is lost, BeginDelete reads back whether the object is marked as
// being deleted.
func TestBeginDeleteReadsBackAfterALostResponse(t *testing.T) {
	for name, fault := range map[string]fault{"executed": lostResponse, "not executed": lostRequest} {
		t.Run(name, func(t *testing.T) {
			a, s, _ := created(t)
			_, err := s.Publish(t.Context(), volume, "")
			require.NoError(t, err)
			a.inject(http.MethodDelete, fault)
			got, err := s.BeginDelete(t.Context(), volume)
			require.NoError(t, err)
			assert.True(t, got.Deleting)
		})
	}
}
