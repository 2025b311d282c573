package controller

import (
	"context"
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/driver/witness"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// degraded returns a controller with a volume that nodeA uses, and whose replica 1 lacks writes.
// The decision keeps replica 1.
func degraded(t *testing.T) (b *replicatedController, v *csi.Volume, d KeepDecision) {
	b = newReplicatedController(t)
	v = b.publishedAndUsed(t)
	id, err := request.ParseVolumeID(v.GetVolumeId())
	require.NoError(t, err)
	r := b.witnesses.records[id.UUID]
	r.Witness, err = r.Witness.SetInSync(r.Witness.Writer, replica.SetOf(0))
	require.NoError(t, err)
	return b, v, KeepDecision{Volume: id, Server: r.Places[1].Server, Discard: r.Places[0].Server, StoppedNode: nodeA}
}

func (b *replicatedController) witness(d KeepDecision) replica.Witness {
	return b.witnesses.records[d.Volume.UUID].Witness
}

// If the server with the only current replica is lost, an administrator can continue with the other
// replica. The lost replica is never used again before it has been overwritten.
func TestOtherReplicaIsKeptAfterTheLossOfAServer(t *testing.T) {
	b, v, d := degraded(t)
	lost := b.server(d.Volume, 0)
	up := lost.down()
	require.ErrorIs(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA), request.ErrNoReplica)
	before, err := b.InspectKeep(t.Context(), d)
	require.NoError(t, err)
	assert.Equal(t, KeepState{Discard: d.Discard, Replicas: []KeptReplica{
		{Number: 0, Server: d.Discard, InSync: true}, {Number: 1, Server: d.Server, Keep: true},
	}}, before)
	after, err := b.KeepReplica(t.Context(), d)
	require.NoError(t, err)
	assert.True(t, after.Done)
	require.ErrorContains(t, after.Unreached, lost.name)
	w := b.witness(d)
	assert.Equal(t, replica.SetOf(1), w.InSync)
	assert.Equal(t, replica.SetOf(0), w.Discarded)
	again, err := b.KeepReplica(t.Context(), d)
	require.NoError(t, err)
	assert.True(t, again.Done)
	assert.Equal(t, w, b.witness(d), "a repeated call changes nothing")

	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
	_, err = b.publish(t.Context(), v, nodeB)
	require.NoError(t, err)
	again, err = b.KeepReplica(t.Context(), d)
	require.NoError(t, err)
	assert.True(t, again.Done)
	assert.Equal(t, nodeB, b.witness(d).Writer.Node, "a repeated call does not end the next publication")
	up()
	_, err = b.publish(t.Context(), v, nodeB)
	require.NoError(t, err)
	assert.Len(t, lost.exports(t), 1, "the discarded replica is exported to be rebuilt")
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeB))
	b.deleteReplicas(t)
}

// A decision changes nothing unless the administrator has typed the name of the server to discard
// and of the node that uses the volume.
func TestUnconfirmedDecisionsChangeNothing(t *testing.T) {
	b, _, d := degraded(t)
	before, state := b.witness(d), b.state(t)
	for name, change := range map[string]func(d *KeepDecision){
		"no server to discard":      func(d *KeepDecision) { d.Discard = "" },
		"another server to discard": func(d *KeepDecision) { d.Discard = d.Server },
		"no node":                   func(d *KeepDecision) { d.StoppedNode = "" },
		"another node":              func(d *KeepDecision) { d.StoppedNode = nodeB },
	} {
		changed := d
		change(&changed)
		_, err := b.KeepReplica(t.Context(), changed)
		require.ErrorIs(t, err, ErrNotConfirmed, name)
		require.ErrorContains(t, err, "Nothing was changed", name)
	}
	b.witnesses.records[d.Volume.UUID].Witness = before.Publish("")
	unnamed := d
	unnamed.StoppedNode = ""
	_, err := b.KeepReplica(t.Context(), unnamed)
	require.ErrorIs(t, err, ErrNotConfirmed, "the witness names no node, but one has used the volume")
	b.witnesses.records[d.Volume.UUID].Witness = before
	assert.Equal(t, state, b.state(t))

	// The volume is published to another node while the servers respond.
	b.witnesses.gets, b.witnesses.onGet = 0, func(count int) {
		if count == 2 {
			r := b.witnesses.records[d.Volume.UUID]
			r.Witness = r.Witness.Publish(nodeB)
		}
	}
	_, err = b.KeepReplica(t.Context(), d)
	require.ErrorIs(t, err, ErrNotConfirmed)
	assert.Equal(t, nodeB, b.witness(d).Writer.Node)
}

// A decision that is impossible is refused with its reason.
func TestImpossibleDecisionsAreRefused(t *testing.T) {
	b, v, d := degraded(t)
	record := b.witnesses.records[d.Volume.UUID]
	before := *record
	for text, c := range map[string]struct {
		change func(d *KeepDecision)
		is     error
	}{
		`"t9" has no replica of the volume: use t0 or t1`: {func(d *KeepDecision) { d.Server = "t9" }, request.ErrInvalid},
		"being deleted":                   {func(*KeepDecision) { record.Deleting = true }, volume.ErrInUse},
		"no node has used the volume yet": {func(*KeepDecision) { record.Witness = replica.NewWitness(replica.SetOf(0, 1)) }, request.ErrUnsupported},
		"3 replicas":                      {func(*KeepDecision) { record.Witness.Replicas |= replica.SetOf(2) }, request.ErrUnsupported},
		"witness":                         {func(d *KeepDecision) { d.Volume.UUID = "x" }, witness.ErrNotFound},
	} {
		changed := d
		c.change(&changed)
		_, err := b.KeepReplica(t.Context(), changed)
		require.ErrorIs(t, err, c.is, text)
		require.ErrorContains(t, err, text)
		_, err = b.InspectKeep(t.Context(), changed)
		require.ErrorIs(t, err, c.is, text)
		*record = before
	}
	up := b.server(d.Volume, 1).down()
	_, err := b.KeepReplica(t.Context(), d)
	require.ErrorContains(t, err, "Nothing was changed")
	assert.Equal(t, before, *record, "the kept replica must be reachable")
	up()
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
	b.witnesses.onPublish = func() { record.Witness = record.Witness.Publish(nodeB) }
	_, err = b.KeepReplica(t.Context(), d)
	require.ErrorIs(t, err, replica.ErrTransition, "it was published again meanwhile")
	assert.Zero(t, record.Witness.Discarded)
	b.SetWitnesses(nil)
	_, err = b.KeepReplica(t.Context(), d)
	require.ErrorContains(t, err, "component replication")
}

// If an access to the witness or an RPC to the server of the kept replica fails, KeepReplica fails
// or has succeeded, and a retry completes it.
func TestKeepSurvivesFailures(t *testing.T) {
	for name, fail := range map[string]func(b *replicatedController, d KeepDecision, n int) (failed func() bool){
		"RPC": func(b *replicatedController, d KeepDecision, n int) func() bool {
			target := b.server(d.Volume, 1)
			before := len(target.failed())
			target.Inject(spdktest.Fault{Skip: n, Do: spdktest.Fail})
			return func() bool { target.ClearFaults(); return len(target.failed()) > before }
		},
		"witness": func(b *replicatedController, _ KeepDecision, n int) func() bool {
			w := b.witnesses
			w.calls, w.failAt, w.fail = 0, n+1, errors.New("no API server")
			return func() bool { w.fail = nil; return w.calls > n }
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				b, v, d := degraded(t)
				end := fail(b, d, n)
				_, err := b.KeepReplica(context.Background(), d)
				failed := end()
				if err == nil {
					assert.Empty(t, b.server(d.Volume, 1).exports(t), "the kept replica is exported to no node")
				}
				if !failed {
					require.NoError(t, err)
					require.Greater(t, n, 2)
					return
				}
				if err == nil {
					assert.Equal(t, "RPC", name, "the state that is read back counts")
				}
				if b.witness(d).Discarded != 0 {
					assert.Empty(t, b.server(d.Volume, 1).exports(t), "the exports end before a replica is discarded")
				}
				state, err := b.KeepReplica(t.Context(), d)
				require.NoError(t, err)
				assert.True(t, state.Done)
				assert.True(t, b.witness(d).Kept(1))
				assert.Empty(t, b.witness(d).Writer.Node)
				_, err = b.publish(t.Context(), v, nodeB)
				require.NoError(t, err)
				b.deleteReplicas(t)
			}
		})
	}
}
