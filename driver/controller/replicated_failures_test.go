package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/driver/witness"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A replicatedState describes the replicated volume "pvc-1": the number of lvols and the hosts on
// each server, and the writer in the witness.
type replicatedState struct {
	Lvols, Hosts []int
	Writer       string
	Witnesses    int
}

func (b *replicatedController) state(t *testing.T) (s replicatedState) {
	t.Helper()
	for _, target := range b.targets {
		hosts := 0
		for _, names := range target.exports(t) {
			hosts += len(names)
		}
		s.Lvols, s.Hosts = append(s.Lvols, len(target.lvols(t))), append(s.Hosts, hosts)
	}
	for _, r := range b.witnesses.records {
		s.Writer = r.Witness.Writer.Node
	}
	s.Witnesses = len(b.witnesses.records)
	return s
}

// A replicatedCall is a call for a replicated volume that can be repeated.
type replicatedCall struct {
	name    string
	prepare func(t *testing.T, b *replicatedController) func(ctx context.Context) error
	// tolerates means that the call succeeds if only one of the servers fails.
	tolerates bool
}

func (b *replicatedController) createCall() func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := b.CreateVolume(ctx, b.request("pvc-1", 9*mib))
		return err
	}
}

func (b *replicatedController) publishedAndUsed(t *testing.T) *csi.Volume {
	t.Helper()
	v, id := b.make(t)
	_, err := b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	b.stage(t, id)
	return v
}

var replicatedCalls = []replicatedCall{
	{name: "create", prepare: func(_ *testing.T, b *replicatedController) func(context.Context) error { return b.createCall() }},
	{name: "create again", prepare: func(t *testing.T, b *replicatedController) func(context.Context) error {
		b.make(t)
		return b.createCall()
	}},
	{name: "first publication", prepare: func(t *testing.T, b *replicatedController) func(context.Context) error {
		v, _ := b.make(t)
		return func(ctx context.Context) error { _, err := b.publish(ctx, v, nodeA); return err }
	}},
	{name: "publish again", tolerates: true, prepare: func(t *testing.T, b *replicatedController) func(context.Context) error {
		v := b.publishedAndUsed(t)
		require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
		return func(ctx context.Context) error { _, err := b.publish(ctx, v, nodeB); return err }
	}},
	{name: "unpublish", tolerates: true, prepare: func(t *testing.T, b *replicatedController) func(context.Context) error {
		v := b.publishedAndUsed(t)
		return func(ctx context.Context) error { return b.unpublish(ctx, v.GetVolumeId(), nodeA) }
	}},
	{name: "delete", prepare: func(t *testing.T, b *replicatedController) func(context.Context) error {
		v, _ := b.make(t)
		return func(ctx context.Context) error { return b.delete(ctx, v.GetVolumeId()) }
	}},
}

// A call for a replicated volume fails if an RPC to either server fails, unless the other replica
// suffices. A retry completes the call, and then everything can be deleted.
func TestReplicatedCallsSurviveFailedRPCs(t *testing.T) {
	for _, call := range replicatedCalls {
		for server := range 2 {
			t.Run(fmt.Sprint(call.name, "/server ", server), func(t *testing.T) {
				want := undisturbed(t, call)
				for skip := 0; ; skip++ {
					b := newReplicatedController(t)
					do := call.prepare(t, b)
					target := b.targets[server]
					before := len(target.failed())
					target.Inject(spdktest.Fault{Skip: skip, Do: spdktest.Fail})
					err := do(t.Context())
					target.ClearFaults()
					failed := target.failed()[before:]
					if len(failed) == 0 {
						require.NoError(t, err)
						require.Greater(t, skip, 2)
						return
					}
					if err == nil && !call.tolerates {
						assert.Equal(t, want, b.state(t), "%s failed, but the call succeeded", failed)
					}
					if err != nil {
						assert.ErrorContains(t, err, target.name, failed)
					}
					require.NoError(t, do(t.Context()), failed)
					assert.Equal(t, want, b.state(t), failed)
					b.deleteReplicas(t)
				}
			})
		}
	}
}

// A call for a replicated volume fails if any access to its witness fails. A retry completes the
// call.
func TestReplicatedCallsSurviveWitnessFailures(t *testing.T) {
	for _, call := range replicatedCalls {
		t.Run(call.name, func(t *testing.T) {
			want := undisturbed(t, call)
			for n := 1; ; n++ {
				b := newReplicatedController(t)
				do := call.prepare(t, b)
				broken := errors.New("no response from Kubernetes")
				b.witnesses.calls, b.witnesses.failAt, b.witnesses.fail = 0, n, broken
				err := do(t.Context())
				reached := b.witnesses.calls >= n
				b.witnesses.fail = nil
				if !reached {
					require.NoError(t, err)
					require.Greater(t, n, 1)
					return
				}
				if err != nil || !call.tolerates { // the check before one of the two admissions
					require.ErrorIs(t, err, broken, n)
					require.ErrorIs(t, err, request.ErrWitness, n)
					drivertest.RequireCode(t, codes.Unavailable, driver.Status(err))
				}
				require.NoError(t, do(t.Context()), n)
				assert.Equal(t, want, b.state(t), n)
				b.deleteReplicas(t)
			}
		})
	}
}

func undisturbed(t *testing.T, call replicatedCall) replicatedState {
	t.Helper()
	b := newReplicatedController(t)
	require.NoError(t, call.prepare(t, b)(t.Context()))
	return b.state(t)
}

// deleteReplicas deletes the volume, if it exists, and requires that nothing is left.
func (b *replicatedController) deleteReplicas(t *testing.T) {
	t.Helper()
	id := request.VolumeID{Target: request.ReplicatedTarget, UUID: replicatedUUID("pvc-1")}.String()
	require.NoError(t, b.unpublish(t.Context(), id, ""))
	require.NoError(t, b.delete(t.Context(), id))
	assert.Equal(t, replicatedState{Lvols: []int{0, 0}, Hosts: []int{0, 0}}, b.state(t))
}

// If the witness of a volume is being deleted, the volume is not published, and its deletion is
// completed.
func TestVolumeBeingDeletedIsNotPublished(t *testing.T) {
	b := newReplicatedController(t)
	v, id := b.make(t)
	b.witnesses.records[id.UUID].Deleting = true
	_, err := b.publish(t.Context(), v, nodeA)
	require.ErrorIs(t, err, volume.ErrInUse)
	require.ErrorContains(t, err, "being deleted")
	assert.Zero(t, b.state(t).Writer)
	require.NoError(t, b.delete(t.Context(), v.GetVolumeId()))
	_, err = b.publish(t.Context(), v, nodeA)
	drivertest.RequireCode(t, codes.NotFound, driver.Status(err), v.GetVolumeId())
}

// A witness with an unexpected number of replicas, or with an unconfigured server, is rejected.
func TestUnexpectedWitnessesAreRejected(t *testing.T) {
	b := newReplicatedController(t)
	v, id := b.make(t)
	places := b.witnesses.records[id.UUID].Places
	b.witnesses.records[id.UUID].Places[1].Server = "nowhere"
	for _, call := range []struct { // the deletion is last, because it marks the witness first
		name string
		do   func() error
	}{
		{"create", func() error { return b.createCall()(t.Context()) }},
		{"publish", func() error { _, err := b.publish(t.Context(), v, nodeA); return err }},
		{"unpublish", func() error { return b.unpublish(t.Context(), v.GetVolumeId(), "") }},
		{"delete", func() error { return b.delete(t.Context(), v.GetVolumeId()) }},
	} {
		require.ErrorContains(t, call.do(), "nowhere", call.name)
	}
	b.witnesses.records[id.UUID].Places, b.witnesses.records[id.UUID].Deleting = places, false
	b.witnesses.records[id.UUID].Witness.Replicas = 1
	require.ErrorIs(t, b.createCall()(t.Context()), volume.ErrIncompatible)
	assert.Equal(t, []int{1, 1}, b.state(t).Lvols)
}

// The health of a replicated volume shows whether all replicas are current.
func TestMissingReplicaIsAHealthProblem(t *testing.T) {
	b := newReplicatedController(t)
	v, id := b.make(t)
	b.withCredentials(t)
	var failure error
	read := func() (all map[string]volume.Condition) {
		all, failure = b.problems(t.Context(), map[string]string{v.GetVolumeId(): ""})
		return all
	}
	w := &b.witnesses.records[id.UUID].Witness
	healthy := map[string]volume.Condition{v.GetVolumeId(): {}}
	assert.Equal(t, healthy, read(), "a new volume has no data yet")
	w.Created, w.InSync = true, w.Replicas
	assert.Equal(t, healthy, read())
	w.InSync = replica.SetOf(1)
	problem := read()[v.GetVolumeId()]
	assert.Equal(t, "ReplicaMissing", problem.Reason)
	assert.False(t, problem.Inaccessible)
	places := b.witnesses.records[id.UUID].Places
	assert.Contains(t, problem.Message, "only the replica on storage server "+places[1].Server)
	assert.Contains(t, problem.Message, "The replica on "+places[0].Server)
	b.witnesses.fail = errors.New("no response from Kubernetes")
	assert.Empty(t, read(), "unknown")
	require.ErrorIs(t, failure, b.witnesses.fail)
	b.witnesses.fail = nil
	b.SetWitnesses(nil)
	assert.Empty(t, read(), "unknown")
	require.ErrorIs(t, failure, request.ErrUnsupported)
}

// Without the component replication, calls for replicated volumes report that it is missing, and
// change nothing.
func TestReplicatedCallsNeedTheComponent(t *testing.T) {
	b := newReplicatedController(t)
	v, _ := b.make(t)
	before := b.state(t)
	b.SetWitnesses(nil)
	_, published := b.publish(t.Context(), v, nodeA)
	for name, err := range map[string]error{
		"create": b.createCall()(t.Context()), "publish": published,
		"unpublish": b.unpublish(t.Context(), v.GetVolumeId(), nodeA), "delete": b.delete(t.Context(), v.GetVolumeId()),
	} {
		require.ErrorIs(t, err, request.ErrUnsupported, name)
		require.ErrorContains(t, err, "component replication", name)
	}
	assert.Equal(t, before, b.state(t))
	b.SetWitnesses(b.witnesses)
	b.credentialsFile = ""
	require.ErrorContains(t, b.createCall()(t.Context()), "SPDKCSI_SECRET")
}

// The context of a volume names the replicas that it was created with. A publication fails if these
// replicas are missing or differ from the replicas in the witness.
func TestPublicationChecksTheVolumeContext(t *testing.T) {
	b := newReplicatedController(t)
	v, id := b.make(t)
	made := v.GetVolumeContext()[request.KeyReplicated]
	r, err := request.ParseReplicated(made)
	require.NoError(t, err)
	for name, change := range map[string]func(r *request.Replicated){
		"another server": func(r *request.Replicated) { r.Replicas[1].Server = "t9" },
		"another number": func(r *request.Replicated) { r.Replicas[1].Number = 2 },
		"another UUID":   func(r *request.Replicated) { r.Replicas[1].UUID = r.Replicas[0].UUID },
	} {
		changed := r
		changed.Replicas = append([]request.Replica(nil), r.Replicas...)
		change(&changed)
		v.VolumeContext[request.KeyReplicated] = changed.Format()
		_, err := b.publish(t.Context(), v, nodeA)
		require.ErrorIs(t, err, volume.ErrIncompatible, name)
	}
	v.VolumeContext[request.KeyReplicated] = ""
	_, err = b.publish(t.Context(), v, nodeA)
	require.ErrorContains(t, err, id.String())
	assert.Zero(t, b.state(t).Writer)
	assert.Equal(t, []int{0, 0}, b.state(t).Hosts)
}

// CreateVolume refuses each feature that replicated volumes lack, with an error that names it.
func TestUnsupportedFeaturesOfReplicatedVolumesAreNamed(t *testing.T) {
	plain := creation{spec: volume.Spec{Class: class.Class{Replicas: 2}}}
	require.NoError(t, checkReplicated(plain, []*csi.VolumeCapability{writer}))
	for text, change := range map[string]func(n *creation){
		"cannot be a copy": func(n *creation) { n.origin.UUID = "x" },
		"thin":             func(n *creation) { n.spec.Class.Thick = true },
		"clearMethod":      func(n *creation) { n.spec.Class.Clear = class.ClearUnmap },
		"unwritten parts":  func(n *creation) { n.spec.Class.Clear = class.ClearNone },
		"authentication":   func(n *creation) { n.spec.Class.Authentication = class.CHAP },
		"I/O limits":       func(n *creation) { n.spec.Class.Limits.IOPS = new(uint64(1)) },
		"ctrl_loss_tmo":    func(n *creation) { n.spec.Class.NVMe = map[string]string{"ctrl_loss_tmo": "1"} },
		"fast_io_fail_tmo": func(n *creation) { n.spec.Class.NVMe = map[string]string{"fast_io_fail_tmo": "1"} },
	} {
		n := plain
		change(&n)
		err := checkReplicated(n, nil)
		require.ErrorIs(t, err, class.ErrParameter, text)
		require.ErrorContains(t, err, text)
		require.ErrorContains(t, err, "Nothing was created")
	}
}

// An error of the witness store is marked if a retry can resolve it; all other errors are returned
// unchanged.
func TestLastingWitnessErrorsAreNotRetried(t *testing.T) {
	require.NoError(t, witnessError(nil))
	for _, lasting := range []error{witness.ErrNotInstalled, witness.ErrNotFound, witness.ErrReplaced, witness.ErrInUse} {
		assert.NotErrorIs(t, witnessError(fmt.Errorf("x: %w", lasting)), request.ErrWitness)
	}
	assert.ErrorIs(t, witnessError(errors.New("x")), request.ErrWitness)
}
