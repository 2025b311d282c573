package replica

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var self = Writer{"node1", 3}

func mine(epoch uint64, inSync Set, rebuild Rebuild) Seen {
	return Seen{Ours, Superblock{epoch, inSync, rebuild}}
}

func TestDecideReturnsTheNextAction(t *testing.T) {
	var (
		created  = Witness{Writer: self, Created: true, Replicas: setAB, InSync: setAB, Held: setAB, Clean: true, Epoch: 5}
		unclean  = Witness{Writer: self, Created: true, Replicas: setAB, InSync: setAB, Held: setAB, Epoch: 5}
		onlyA    = Witness{Writer: self, Created: true, Replicas: setAB, InSync: setA, Held: setA, Logged: setB, Epoch: 5}
		unlogged = Witness{Writer: self, Created: true, Replicas: setAB, InSync: setA, Held: setA, Epoch: 5}
		fresh    = NewWitness(setAB).Publish("node1")
		keptA    = Witness{Writer: self, Created: true, Replicas: setAB, InSync: setA, Discarded: setB, Epoch: 6}
		equal    = mine(5, setAB, NoRebuild)
		earlier  = mine(4, setAB, NoRebuild)
		claimsB  = mine(5, setA, NoRebuild)
		claimsA  = mine(5, setB, NoRebuild)
		blank    = Seen{State: Blank}
		foreign  = Seen{State: Foreign}
		errored  = Seen{State: Unreadable}
		gone     = Seen{}
		partial  = mine(5, setA, ByBitmap)
		partFull = mine(5, setA, InFull)
	)
	start := func(inSync, logged, byBitmap, inFull, left Set) Decision {
		return Decision{Action: Start, InSync: inSync, Logged: logged, ByBitmap: byBitmap, InFull: inFull, Left: left}
	}
	stop := func(a Action, r Reason, because Set) Decision {
		return Decision{Action: a, Reason: r, Because: because}
	}
	for _, test := range []struct {
		name string
		w    Witness
		a, b Seen
		want Decision
	}{
		{"new, both blank", fresh, blank, blank, Decision{Action: Create, InSync: setAB}},
		{"new, interrupted", fresh, mine(0, setAB, NoRebuild), blank, Decision{Action: Create, InSync: setAB}},
		{"new, one unreachable", fresh, blank, gone, stop(Wait, ReplicaMissing, setB)},
		{"new, one unreadable", fresh, errored, blank, stop(Wait, ReplicaMissing, setA)},
		{"new, one foreign", fresh, blank, foreign, stop(Refuse, ReplicaNotOurs, setB)},
		{"both equal", created, equal, equal, start(setAB, 0, 0, 0, 0)},
		{"B has old data", created, equal, earlier, start(setA, 0, 0, setB, 0)},
		{"A has old data", created, earlier, equal, start(setB, 0, 0, setA, 0)},
		{"A has old data, which claims that B failed", created, mine(4, setA, NoRebuild), equal, start(setB, 0, 0, 0, setA)},
		{"unclean, a start was interrupted", unclean, earlier, equal, start(setB, 0, 0, setA, 0)},
		{"unclean, both equal", unclean, equal, equal, start(setA, 0, 0, setB, 0)},
		{"unclean, A unreachable", unclean, gone, equal, start(setB, 0, 0, 0, 0)},
		{"unclean, B unreachable", unclean, equal, gone, start(setA, 0, 0, 0, 0)},
		{"unclean, B claims that A failed", unclean, equal, claimsA, start(setB, 0, 0, setA, 0)},
		{"A claims that B failed", created, claimsB, equal, start(setA, 0, 0, setB, 0)},
		{"B claims that A failed", created, earlier, claimsA, start(setB, 0, 0, setA, 0)},
		{"each claims that the other failed", created, claimsB, claimsA, stop(Refuse, SplitBrain, setAB)},
		{"both listed, B unreachable", created, equal, gone, start(setA, setB, 0, 0, 0)},
		{"both listed, A unreadable", created, errored, equal, start(setB, setA, 0, 0, setA)},
		{"both listed, B blank", created, equal, blank, stop(Refuse, ReplicaNotOurs, setB)},
		{"both listed, B foreign", created, equal, foreign, stop(Refuse, ReplicaNotOurs, setB)},
		{"both listed, B being rebuilt", created, equal, partial, start(setA, 0, 0, setB, 0)},
		{"both listed, only B reachable, being rebuilt", created, gone, partial, stop(Wait, ReplicaMissing, setA)},
		{"both listed, both being rebuilt", created, partial, partial, stop(Refuse, NotRebuilt, setAB)},
		{"none reachable", created, gone, gone, stop(Wait, ReplicaMissing, setAB)},
		{"A listed, both equal", onlyA, equal, equal, start(setA, setB, setB, 0, 0)},
		{"A listed, both equal, not in the log", unlogged, equal, equal, start(setA, 0, 0, setB, 0)},
		{"A listed, B half rebuilt by bitmap, not in the log", unlogged, claimsB, partial, start(setA, 0, 0, setB, 0)},
		{"A listed, A unreachable", onlyA, gone, equal, stop(Wait, ReplicaMissing, setA)},
		{"A listed, A unreadable", onlyA, errored, equal, stop(Wait, ReplicaMissing, setA)},
		{"A listed, B blank", onlyA, claimsB, blank, start(setA, setB, 0, setB, 0)},
		{"A listed, B half rebuilt by bitmap", onlyA, claimsB, partial, start(setA, setB, setB, 0, 0)},
		{"A listed, B half rebuilt in full", onlyA, claimsB, partFull, start(setA, setB, 0, setB, 0)},
		{"A listed, B claims that A failed", onlyA, claimsB, claimsA, start(setA, setB, 0, 0, setB)},
		{"A listed, B unreadable", onlyA, claimsB, errored, start(setA, setB, 0, 0, setB)},
		{"A listed, B foreign", onlyA, claimsB, foreign, start(setA, setB, 0, 0, setB)},
		{"B discarded", keptA, earlier, equal, start(setA, 0, 0, setB, 0)},
		{"B discarded, which claims that A failed", keptA, claimsB, claimsA, start(setA, 0, 0, setB, 0)},
		{"B discarded, half rebuilt by bitmap", keptA, claimsB, partial, start(setA, 0, 0, setB, 0)},
		{"B discarded, blank", keptA, claimsB, blank, start(setA, 0, 0, setB, 0)},
		{"B discarded, foreign", keptA, claimsB, foreign, start(setA, 0, 0, 0, setB)},
		{"B discarded, unreadable", keptA, claimsB, errored, start(setA, 0, 0, 0, setB)},
		{"B discarded, A half rebuilt", keptA, partial, equal, stop(Refuse, NotRebuilt, setA)},
		{"B discarded, A unreachable", keptA, gone, equal, stop(Wait, ReplicaMissing, setA)},
		{"B discarded, with a later epoch", keptA, equal, mine(7, setB, NoRebuild), stop(Refuse, WitnessOlder, setB)},
		{"a later epoch than in the witness", created, equal, mine(6, setAB, NoRebuild), stop(Refuse, WitnessOlder, setB)},
		{"a later epoch on an unlisted replica", onlyA, equal, mine(6, setAB, NoRebuild), stop(Refuse, WitnessOlder, setB)},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := test.w
			assert.Equal(t, test.want, Decide(w.Writer, w, true, View{test.a, test.b}))
			assert.Equal(t, stop(Wait, WitnessUnreachable, 0), Decide(w.Writer, w, false, View{test.a, test.b}))
			for _, other := range []Writer{{}, {"node2", w.Writer.Generation}, {"node1", w.Writer.Generation - 1}} {
				assert.Equal(t, stop(Refuse, Fenced, 0), Decide(other, w, true, View{test.a, test.b}))
			}
		})
	}
}

func TestWitnessTransitionsAreChecked(t *testing.T) {
	w := NewWitness(setAB)
	_, err := w.Create(Writer{})
	require.ErrorIs(t, err, ErrFenced, "no publication")
	w = w.Publish("node1")
	first := w.Writer
	assert.Equal(t, w, w.Publish("node1"), "a repeated publication keeps its generation")
	_, err = w.Add(2)
	require.ErrorIs(t, err, ErrTransition, "not created")
	_, err = w.Start(first, setAB, 0)
	require.ErrorIs(t, err, ErrTransition, "not created")
	w, err = w.Create(first)
	require.NoError(t, err)
	assert.Equal(t, Witness{Writer: first, Created: true, Replicas: setAB, InSync: setAB, Clean: true, Epoch: 1}, w)
	_, err = w.Create(first)
	require.ErrorIs(t, err, ErrTransition, "created twice")

	w, err = w.Start(first, setAB, 0)
	require.NoError(t, err)
	assert.Equal(t, uint64(2), w.Epoch, "a start counts even if the in-sync set is the same")
	for name, inSync := range map[string]Set{"empty": 0, "not of the volume": SetOf(0, 2)} {
		_, err = w.SetInSync(first, inSync)
		require.ErrorIs(t, err, ErrTransition, name)
	}
	w, err = w.SetInSync(first, setA)
	require.NoError(t, err)
	assert.Equal(t, setA, w.InSync)
	assert.Equal(t, uint64(3), w.Epoch)
	same, err := w.SetInSync(first, setA)
	require.NoError(t, err)
	assert.Equal(t, uint64(4), same.Epoch, "every write overtakes the delayed ones")
	_, err = w.Remove(1)
	require.ErrorIs(t, err, ErrTransition, "the mirror has it")
	_, err = w.Hold(first, setB)
	require.ErrorIs(t, err, ErrTransition, "the mirror must have what is in sync")
	w, err = w.Hold(first, setA)
	require.NoError(t, err)
	_, err = w.SetInSync(first, setAB)
	require.ErrorIs(t, err, ErrTransition, "the mirror does not have it")

	w, err = w.Add(2)
	require.NoError(t, err)
	_, err = w.Add(2)
	require.ErrorIs(t, err, ErrTransition, "added twice")
	_, err = w.Add(MaxReplicas)
	require.ErrorIs(t, err, ErrTransition, "no such ID")
	_, err = w.Remove(0)
	require.ErrorIs(t, err, ErrTransition, "it is in sync")
	w, err = w.Remove(1)
	require.NoError(t, err)
	assert.Equal(t, SetOf(0, 2), w.Replicas)
	again, err := w.Remove(1)
	require.NoError(t, err)
	assert.Equal(t, w, again, "a repeated removal changes nothing")

	w = w.Publish("node2")
	assert.Equal(t, Writer{"node2", first.Generation + 1}, w.Writer)
	assert.Zero(t, w.Held, "the mirror of the former node does not count")
	for name, change := range map[string]func() (Witness, error){
		"Start":     func() (Witness, error) { return w.Start(first, setA, 0) },
		"SetInSync": func() (Witness, error) { return w.SetInSync(first, setA) },
		"Hold":      func() (Witness, error) { return w.Hold(first, setA) },
		"Create":    func() (Witness, error) { return w.Create(first) },
	} {
		_, err := change()
		require.ErrorIs(t, err, ErrFenced, name)
	}
	assert.NotEqual(t, first, w.Publish("node1").Writer, "the former publication of a node never returns")
}

// A stop counts as clean only between Stop and the next Start. The log covers a replica from Log
// until that replica is in sync again.
func TestCleanStopAndLogCoverageExpire(t *testing.T) {
	w := NewWitness(setAB).Publish("node1")
	first := w.Writer
	_, err := w.Stop(first)
	require.ErrorIs(t, err, ErrTransition, "not created")
	w, err = w.Create(first)
	require.NoError(t, err)
	failed, err := w.Start(Writer{}, setAB, 0)
	require.ErrorIs(t, err, ErrFenced)
	assert.Equal(t, w, failed, "after an error, the witness is unchanged")
	w, err = w.Start(first, setAB, 0)
	require.NoError(t, err)
	assert.False(t, w.Clean)
	assert.False(t, w.Publish("node2").Clean, "a publication is not a clean stop")
	_, err = w.Log(first, setB)
	require.ErrorIs(t, err, ErrTransition, "it is in sync")
	w, err = w.SetInSync(first, setA)
	require.NoError(t, err)
	assert.Zero(t, w.Logged, "the log does not cover it yet")
	_, err = w.Log(first, SetOf(2))
	require.ErrorIs(t, err, ErrTransition, "not of the volume")
	w, err = w.Log(first, setB)
	require.NoError(t, err)
	assert.Equal(t, setB, w.Logged)
	stopped, err := w.Stop(first)
	require.NoError(t, err)
	assert.True(t, stopped.Clean)
	assert.Equal(t, setB, stopped.Publish("node2").Logged)
	listed, err := w.SetInSync(first, setAB)
	require.NoError(t, err)
	assert.Zero(t, listed.Logged)
	_, err = w.Publish("node2").Stop(first)
	require.ErrorIs(t, err, ErrFenced)
	_, err = w.Publish("node2").Log(first, setB)
	require.ErrorIs(t, err, ErrFenced)

	w, err = w.Hold(first, setA)
	require.NoError(t, err)
	w, err = w.Remove(1)
	require.NoError(t, err)
	assert.Zero(t, w.Logged, "its number can be given to another replica")
}

func TestSetContainsItsReplicas(t *testing.T) {
	s := SetOf(0, 2)
	assert.Equal(t, []ID{0, 2}, s.IDs())
	assert.Equal(t, 2, s.Len())
	assert.True(t, s.Contains(SetOf(2)) && s.Contains(0))
	assert.False(t, s.Contains(SetOf(1, 2)))
}

// After Keep, the witness lists only the kept replica. The others stay discarded until they are in
// sync again.
func TestKeepDiscardsAllOtherReplicas(t *testing.T) {
	w := NewWitness(setAB).Publish("node1")
	first := w.Writer
	_, err := w.Publish("").Keep(1)
	require.ErrorIs(t, err, ErrTransition, "not created")
	w, err = w.Create(first)
	require.NoError(t, err)
	w, err = w.Start(first, setA, setB)
	require.NoError(t, err)
	_, err = w.Keep(1)
	require.ErrorIs(t, err, ErrTransition, "published")
	require.ErrorContains(t, err, "node1")
	_, err = w.Publish("").Keep(2)
	require.ErrorIs(t, err, ErrTransition, "not of the volume")

	kept, err := w.Publish("").Keep(1)
	require.NoError(t, err)
	assert.Equal(t, Witness{Writer: Writer{"", 2}, Created: true, Replicas: setAB, InSync: setB, Discarded: setA, Epoch: w.Epoch + 1}, kept)
	assert.True(t, kept.Kept(1))
	assert.False(t, kept.Kept(0))
	again, err := kept.Publish("node2").Keep(1)
	require.NoError(t, err)
	assert.Equal(t, kept.Publish("node2"), again, "a repeated decision changes nothing")
	reversed, err := kept.Keep(0)
	require.NoError(t, err)
	assert.Equal(t, setA, reversed.InSync)
	assert.Equal(t, setB, reversed.Discarded)

	next := kept.Publish("node2")
	next, err = next.Start(next.Writer, setB, 0)
	require.NoError(t, err)
	next, err = next.Hold(next.Writer, setAB)
	require.NoError(t, err)
	assert.Equal(t, setA, next.Discarded, "the rebuild is not complete")
	next, err = next.SetInSync(next.Writer, setAB)
	require.NoError(t, err)
	assert.Zero(t, next.Discarded)

	removed, err := kept.Remove(0)
	require.NoError(t, err)
	assert.Zero(t, removed.Discarded, "its number can be given to another replica")
}
