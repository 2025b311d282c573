package witness

import (
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

const volume = "pvc-1"

var (
	placeA, placeB, placeC = Place{"storage-1", "lvs/pvc-1"}, Place{"storage-2", "lvs/pvc-1"}, Place{"storage-3", "lvs/pvc-1"}
	setA, setB, setAB      = replica.SetOf(0), replica.SetOf(1), replica.SetOf(0, 1)
	writer                 = replica.Writer{Node: "node-1", Generation: 1}
)

func create(w replica.Witness) (replica.Witness, error) { return w.Create(writer) }

func start(w replica.Witness) (replica.Witness, error) { return w.Start(writer, setAB, 0) }

func dropB(w replica.Witness) (replica.Witness, error) { return w.SetInSync(writer, setA) }

// created returns an API with a volume that node-1 has created, and the store of that node.
func created(t *testing.T) (*api, *Store, Record) {
	a := newAPI(t)
	s := a.store()
	_, err := s.Create(t.Context(), volume, placeA, placeB)
	require.NoError(t, err)
	r, err := s.Publish(t.Context(), volume, writer.Node)
	require.NoError(t, err)
	r, err = s.Change(t.Context(), volume, r.UID, create)
	require.NoError(t, err)
	a.calls = nil
	return a, s, r
}

// started is like created, but the mirror has been started with both replicas.
func started(t *testing.T) (*api, *Store, Record) {
	a, s, r := created(t)
	r, err := s.Change(t.Context(), volume, r.UID, start)
	require.NoError(t, err)
	a.calls = nil
	return a, s, r
}

func TestWitnessIsCreatedChangedAndDeleted(t *testing.T) {
	a := newAPI(t)
	controller, node := a.store(), a.store()
	r, err := controller.Create(t.Context(), volume, placeA, placeB)
	require.NoError(t, err)
	assert.Equal(t, replica.NewWitness(setAB), r.Witness)
	assert.Equal(t, [replica.MaxReplicas]Place{placeA, placeB}, r.Places)

	model := replica.NewWitness(setAB).Publish(writer.Node)
	r, err = controller.Publish(t.Context(), volume, writer.Node)
	require.NoError(t, err)
	assert.Equal(t, model, r.Witness)
	for _, transition := range []func(replica.Witness) (replica.Witness, error){
		create, start, dropB,
		func(w replica.Witness) (replica.Witness, error) { return w.Hold(writer, setA) },
		func(w replica.Witness) (replica.Witness, error) { return w.Log(writer, setB) },
		func(w replica.Witness) (replica.Witness, error) { return w.Stop(writer) },
	} {
		model, err = transition(model)
		require.NoError(t, err)
		r, err = node.Change(t.Context(), volume, r.UID, transition)
		require.NoError(t, err)
		assert.Equal(t, model, r.Witness)
	}
	r, err = controller.Add(t.Context(), volume, 2, placeC)
	require.NoError(t, err)
	assert.Equal(t, [replica.MaxReplicas]Place{placeA, placeB, placeC}, r.Places)
	r, err = controller.Remove(t.Context(), volume, 1, placeB)
	require.NoError(t, err)
	assert.Equal(t, replica.Witness{Writer: writer, Created: true, Replicas: replica.SetOf(0, 2), InSync: setA, Held: setA, Clean: true, Epoch: model.Epoch}, r.Witness)
	assert.Equal(t, [replica.MaxReplicas]Place{0: placeA, 2: placeC}, r.Places)
	got, err := node.Get(t.Context(), volume)
	require.NoError(t, err)
	assert.True(t, got.same(r))

	require.ErrorIs(t, controller.Delete(t.Context(), volume), ErrInUse)
	_, err = controller.Publish(t.Context(), volume, "")
	require.NoError(t, err)
	require.NoError(t, controller.Delete(t.Context(), volume))
	require.NoError(t, controller.Delete(t.Context(), volume))
	_, err = controller.Get(t.Context(), volume)
	require.ErrorIs(t, err, ErrNotFound)
}

// A new publication clears the set of replicas in the previous node's mirror, in the same write.
func TestNewPublicationClearsHeldReplicas(t *testing.T) {
	a, s, r := started(t)
	assert.Equal(t, setAB, r.Witness.Held)
	r, err := s.Publish(t.Context(), volume, "node-2")
	require.NoError(t, err)
	assert.Equal(t, replica.Writer{Node: "node-2", Generation: 2}, r.Witness.Writer)
	assert.Zero(t, r.Witness.Held)
	assert.Equal(t, []string{"GET /pvc-1", "PUT /pvc-1"}, a.calls)
	_, err = s.Change(t.Context(), volume, r.UID, dropB)
	require.ErrorIs(t, err, replica.ErrFenced)
	assert.NotErrorIs(t, err, ErrUnknown)
	_, err = s.Publish(t.Context(), volume, "node-2")
	require.NoError(t, err)
	assert.Equal(t, []string{"GET /pvc-1", "PUT /pvc-1", "GET /pvc-1", "GET /pvc-1"}, a.calls, "a repeated publication writes nothing")
}

// Change always writes the witness, even without a change, because the write proves that the node
// is still the writer.
func TestUnchangedWitnessIsWrittenToProveOwnership(t *testing.T) {
	a, s, r := started(t)
	_, err := s.Change(t.Context(), volume, r.UID, func(w replica.Witness) (replica.Witness, error) { return w, nil })
	require.NoError(t, err)
	assert.Equal(t, []string{"GET /pvc-1", "PUT /pvc-1/status"}, a.calls)
}

func TestConflictingChangeIsRetried(t *testing.T) {
	a, s, r := started(t)
	a.inject(http.MethodPut, after(func() {
		a.edit(volume, func(o map[string]any) {
			o["spec"].(map[string]any)["writer"] = map[string]any{"node": "node-2", "generation": 2}
		})
	}))
	_, err := s.Change(t.Context(), volume, r.UID, dropB)
	require.ErrorIs(t, err, replica.ErrFenced)
	assert.NotErrorIs(t, err, ErrUnknown)
	assert.Equal(t, []string{"GET /pvc-1", "PUT /pvc-1/status", "GET /pvc-1"}, a.calls)
	got, err := s.Get(t.Context(), volume)
	require.NoError(t, err)
	assert.Equal(t, setAB, got.Witness.InSync)
}

// Concurrent changes to one witness are applied one at a time, and no change is lost.
func TestConcurrentChangesAreAllApplied(t *testing.T) {
	a, s, r := created(t)
	var group sync.WaitGroup
	errs := make([]error, 8)
	s.pause, s.seen = NewStore(nil).pause, map[string]mark{}
	for i := range errs {
		group.Go(func() { _, errs[i] = s.Publish(t.Context(), volume, "node-"+strconv.Itoa(i+10)) })
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	got, err := a.store().Get(t.Context(), volume)
	require.NoError(t, err)
	assert.Equal(t, r.Witness.Writer.Generation+8, got.Witness.Writer.Generation)
}

// Get and Change reject a witness that is older than a witness that this process has already read.
// The controller calls Get before it admits a node.
func TestOlderWitnessIsRejected(t *testing.T) {
	a, s, r := started(t)
	old := a.object(volume)
	_, err := s.Change(t.Context(), volume, r.UID, dropB)
	require.NoError(t, err)
	a.inject(http.MethodGet, responds(old))
	_, err = s.Get(t.Context(), volume)
	require.ErrorIs(t, err, ErrOlder)
	a.inject(http.MethodGet, responds(old))
	_, err = s.Change(t.Context(), volume, r.UID, dropB)
	require.ErrorIs(t, err, ErrOlder)

	old = a.object(volume)
	_, err = s.Publish(t.Context(), volume, "node-2")
	require.NoError(t, err)
	a.inject(http.MethodGet, responds(old))
	_, err = s.Get(t.Context(), volume)
	require.ErrorIs(t, err, ErrOlder)

	// Restore the API server's data, so that resourceVersions are reused.
	a.mu.Lock()
	a.objects[volume] = copyOf(t, old)
	a.mu.Unlock()
	_, err = s.Publish(t.Context(), volume, "node-3")
	require.ErrorIs(t, err, ErrOlder)
}

// A response that arrives after a newer response is not mistaken for a restored API server.
func TestLateResponseIsNotMistakenForARestore(t *testing.T) {
	a, s, r := started(t)
	old := a.object(volume)
	a.inject(http.MethodGet, func(func() (int, any)) (int, any) {
		s.mu.Lock()
		s.seen[volume] = mark{r.UID, r.Witness.Epoch + 1, r.Witness.Writer.Generation}
		s.mu.Unlock()
		return http.StatusOK, old
	})
	_, err := s.Get(t.Context(), volume)
	require.NoError(t, err)
	_, err = s.Get(t.Context(), volume)
	require.ErrorIs(t, err, ErrOlder)
}

// The writer does not change a witness that was deleted and restored from a backup, because it is a
// different object.
func TestRestoredObjectIsNotChanged(t *testing.T) {
	a, s, r := started(t)
	a.mu.Lock()
	a.edit(volume, func(o map[string]any) { meta(o)["uid"] = "other" })
	a.mu.Unlock()
	_, err := s.Change(t.Context(), volume, r.UID, dropB)
	require.ErrorIs(t, err, ErrReplaced)
	assert.Equal(t, []string{"GET /pvc-1"}, a.calls)
}

// A recreated witness is reported as replaced rather than older, even if its epoch is lower. The
// epochs of different objects are not compared, and the writer of the first object learns that its
// object no longer exists.
func TestRecreatedWitnessIsReportedAsReplaced(t *testing.T) {
	a, s, r := created(t)
	recreated := a.object(volume)
	meta(recreated)["uid"] = "other"
	_, err := s.Change(t.Context(), volume, r.UID, start)
	require.NoError(t, err)
	a.mu.Lock()
	a.objects[volume] = recreated
	a.mu.Unlock()
	a.calls = nil
	_, err = s.Change(t.Context(), volume, r.UID, dropB)
	require.ErrorIs(t, err, ErrReplaced)
	assert.NotErrorIs(t, err, ErrOlder)
	assert.Equal(t, []string{"GET /pvc-1"}, a.calls, "nothing was written")
	got, err := s.Get(t.Context(), volume)
	require.NoError(t, err)
	assert.Equal(t, "other", got.UID)
	assert.EqualValues(t, 1, got.Witness.Epoch)
}

// Every read requests the newest object from the API server. A resourceVersion in the request would
// allow the API server to return an older object.
func TestReadsAreNotCached(t *testing.T) {
	a, s, _ := started(t)
	for range 2 {
		_, err := s.Get(t.Context(), volume)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"GET /pvc-1", "GET /pvc-1"}, a.calls)
}

// If the API server drops fields of the witness, the change fails.
func TestAlteredWitnessIsRejected(t *testing.T) {
	a, s, r := started(t)
	a.alter = func(status any) { status.(map[string]any)["clean"] = true }
	_, err := s.Change(t.Context(), volume, r.UID, dropB)
	require.ErrorIs(t, err, ErrAltered)
	a.alter = func(status any) { delete(status.(map[string]any), "logged") }
	_, err = s.Change(t.Context(), volume, r.UID, func(w replica.Witness) (replica.Witness, error) { return w.Log(writer, setB) })
	require.ErrorIs(t, err, ErrUnreadable)
}

// Keep changes only the status, fails while a node uses the volume, and can be repeated. Its
// outcome is read back if it is unknown.
func TestKeepStoresTheDiscardedReplicas(t *testing.T) {
	for name, lost := range map[string]fault{"": after(func() {}), "request lost": lostRequest, "response lost": lostResponse} {
		a, s, _ := started(t)
		_, err := s.Keep(t.Context(), volume, 1, placeB)
		require.ErrorIs(t, err, replica.ErrTransition, name)
		_, err = s.Publish(t.Context(), volume, "")
		require.NoError(t, err)
		_, err = s.Keep(t.Context(), volume, 1, placeA)
		require.ErrorIs(t, err, ErrOther, name)
		before := a.object(volume)["spec"]
		a.inject(http.MethodPut, lost)
		for range 2 {
			r, err := s.Keep(t.Context(), volume, 1, placeB)
			require.NoError(t, err, name)
			assert.Equal(t, setB, r.Witness.InSync, name)
			assert.Equal(t, setA, r.Witness.Discarded, name)
			assert.Equal(t, uint64(3), r.Witness.Epoch, name)
		}
		assert.Equal(t, before, a.object(volume)["spec"], name)
	}
}

// The number of a removed replica can be reused, so the next replica with this number is not
// discarded.
func TestRemovedReplicaIsNoLongerDiscarded(t *testing.T) {
	_, s, _ := started(t)
	_, err := s.Publish(t.Context(), volume, "")
	require.NoError(t, err)
	_, err = s.Keep(t.Context(), volume, 0, placeA)
	require.NoError(t, err)
	r, err := s.Remove(t.Context(), volume, 1, placeB)
	require.NoError(t, err)
	assert.Equal(t, setA, r.Witness.Replicas)
	r, err = s.Add(t.Context(), volume, 1, placeC)
	require.NoError(t, err)
	assert.Zero(t, r.Witness.Discarded)
}
