package witness

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// A transition is applied only once, even if the API server's response was lost.
func TestLostResponseIsReadBack(t *testing.T) {
	for name, fault := range map[string]fault{"executed": lostResponse, "not executed": lostRequest, "failed": fails(http.StatusInternalServerError)} {
		t.Run(name, func(t *testing.T) {
			a, s, r := started(t)
			a.inject(http.MethodPut, fault)
			got, err := s.Change(t.Context(), volume, r.UID, dropB)
			require.NoError(t, err)
			assert.Equal(t, setA, got.Witness.InSync)
			assert.Equal(t, r.Witness.Epoch+1, got.Witness.Epoch)
			stored, err := a.store().Get(t.Context(), volume)
			require.NoError(t, err)
			assert.True(t, stored.same(got))
		})
	}
}

// A transition that is not repeatable succeeds even if its first response was lost.
func TestLostCreateResponseIsReadBack(t *testing.T) {
	a := newAPI(t)
	s := a.store()
	a.inject(http.MethodPost, lostResponse)
	r, err := s.Create(t.Context(), volume, placeA, placeB)
	require.NoError(t, err)
	r, err = s.Publish(t.Context(), volume, writer.Node)
	require.NoError(t, err)
	a.inject(http.MethodPut, lostResponse)
	r, err = s.Change(t.Context(), volume, r.UID, create)
	require.NoError(t, err)
	assert.True(t, r.Witness.Created)
	assert.EqualValues(t, 1, r.Witness.Epoch)
}

// A late write, which the API server executes only after the witness has been read again, cannot
// overwrite the repeated write.
func TestLateWriteDoesNotOverwriteANewerOne(t *testing.T) {
	a, s, r := started(t)
	var run func()
	a.inject(http.MethodPut, late(&run))
	_, err := s.Change(t.Context(), volume, r.UID, dropB)
	require.NoError(t, err)
	got, err := s.Change(t.Context(), volume, r.UID, func(w replica.Witness) (replica.Witness, error) { return w.SetInSync(writer, setAB) })
	require.NoError(t, err)
	a.mu.Lock()
	run()
	a.mu.Unlock()
	stored, err := a.store().Get(t.Context(), volume)
	require.NoError(t, err)
	assert.True(t, stored.same(got), "the late write has overwritten a newer one")
}

// If the outcome of a write is unknown, the error reports that, rather than a refusal.
func TestUnknownOutcomeIsReported(t *testing.T) {
	a, s, r := started(t)
	a.inject(http.MethodPut, lostResponse)
	a.inject(http.MethodGet, after(func() {}))
	a.inject(http.MethodGet, slices.Repeat([]fault{fails(http.StatusServiceUnavailable)}, 20)...)
	_, err := s.Change(t.Context(), volume, r.UID, dropB)
	require.ErrorIs(t, err, ErrUnknown)

	a, s, r = started(t)
	a.inject(http.MethodGet, slices.Repeat([]fault{fails(http.StatusServiceUnavailable)}, 20)...)
	_, err = s.Change(t.Context(), volume, r.UID, dropB)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrUnknown, "nothing was written")

	// After the change has been stored, the controller publishes the volume to another node.
	a, s, r = started(t)
	a.inject(http.MethodPut, lostResponse)
	a.inject(http.MethodGet, after(func() {}), after(func() {
		a.edit(volume, func(o map[string]any) {
			o["spec"].(map[string]any)["writer"] = map[string]any{"node": "node-2", "generation": 2}
		})
	}))
	_, err = s.Change(t.Context(), volume, r.UID, dropB)
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorIs(t, err, replica.ErrFenced)

	a.inject(http.MethodPost, slices.Repeat([]fault{lostRequest}, 20)...)
	_, err = s.Create(t.Context(), "pvc-2", placeA)
	require.ErrorIs(t, err, ErrUnknown)
}
