package controller

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A slowCaller makes each RPC take one millisecond of a synctest bubble's time. A CSI call then
// takes one millisecond for each round of RPCs that depends on the previous one. Goroutines outside
// the bubble make the calls, because the bubble's time stands still while one of its goroutines is
// waiting for a socket.
type slowCaller struct{ idle chan *passer }

type passer struct {
	calls   chan passed
	answers chan error
}

type passed struct {
	method         string
	params, result any
}

// pass makes the call. For snapshots, it calls SPDK's method instead of the proxy's method. Either
// method takes one round.
func (c passed) pass(to spdkrpc.Caller) error {
	if c.method != "spdkgate_lvol_snapshot" {
		return to.Call(context.Background(), c.method, c.params, c.result)
	}
	var p spdkrpc.SpdkgateLvolSnapshotParams
	if err := json.Unmarshal(c.params.(json.RawMessage), &p); err != nil {
		return err
	}
	var id string
	if err := to.Call(context.Background(), "bdev_lvol_snapshot", map[string]any{"lvol_name": p.Snapshots[0].LvolName, "snapshot_name": p.Snapshots[0].SnapshotName}, &id); err != nil {
		return err
	}
	*c.result.(*[]spdkrpc.ProxySnapshot) = []spdkrpc.ProxySnapshot{{UUID: id}}
	return nil
}

// newSlowCaller must be called outside the bubble.
func newSlowCaller(t *testing.T, to spdkrpc.Caller) slowCaller {
	t.Helper()
	const atOnce = 64
	s := slowCaller{make(chan *passer, atOnce)}
	for range atOnce {
		p := &passer{make(chan passed), make(chan error)}
		go func() {
			for c := range p.calls {
				p.answers <- c.pass(to)
			}
		}()
		t.Cleanup(func() { close(p.calls) })
		s.idle <- p
	}
	return s
}

func (s slowCaller) Call(_ context.Context, method string, params, result any) error {
	time.Sleep(time.Millisecond)
	p := <-s.idle
	defer func() { s.idle <- p }()
	p.calls <- passed{method, params, result}
	return <-p.answers
}

// TestCallsNeedFewRoundTrips counts the rounds of each call. A round consists of the RPCs
// that wait for the previous round. A real target takes 4 to 8 ms for each round, regardless of the
// number of RPCs in the round.
func TestCallsNeedFewRoundTrips(t *testing.T) {
	for _, c := range []struct {
		release, transport string
		parameters         map[string]string
		rounds             map[string]int
	}{
		{"v26.05", config.TargetNVMeTCP, nil, map[string]int{"create": 3, "publish": 4, "unpublish": 2, "delete": 2}},
		{"v26.05", config.TargetNVMeTCP, map[string]string{"thin": "false"}, map[string]int{"create": 6, "publish": 4, "unpublish": 3, "delete": 2}},
		{"v26.09", config.TargetNVMeTCP, nil, map[string]int{"create": 3, "publish": 4, "unpublish": 2, "delete": 2}},
		{"v24.01", config.TargetNVMeTCP, nil, map[string]int{"create": 6, "publish": 7, "unpublish": 3, "delete": 2}},
		{"v26.05", config.TargetISCSI, nil, map[string]int{"create": 3, "publish": 6, "unpublish": 5, "delete": 2}},
	} {
		t.Run(fmt.Sprint(c.release, " ", c.transport, " ", c.parameters), func(t *testing.T) {
			slow, transport := slowTarget(t, c.release), c.transport
			synctest.Test(t, func(t *testing.T) {
				b, secrets := roundsController(t, slow, transport)
				rounds := map[string]int{}
				// The figures for the second volume are the actual cost of each call. The figures
				// for the first also include filling the controller's caches.
				for _, name := range []string{"pvc-1", "pvc-2"} {
					count := func(call string, do func(ctx context.Context) error) {
						began := time.Now()
						require.NoError(t, do(volume.AskOnce(t.Context())), call) // as the driver's gRPC server does
						rounds[call] = int(time.Since(began) / time.Millisecond)
						synctest.Wait()
					}
					var v *csi.Volume
					capability := writer
					count("create", func(ctx context.Context) error {
						r, err := b.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability}, CapacityRange: &csi.CapacityRange{RequiredBytes: 4 * mib}, Parameters: c.parameters, Secrets: secrets})
						v = r.GetVolume()
						return err
					})
					count("publish", func(ctx context.Context) error {
						_, err := b.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: nodeA, VolumeCapability: capability, VolumeContext: v.GetVolumeContext(), Secrets: secrets})
						return err
					})
					count("unpublish", func(ctx context.Context) error {
						_, err := b.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: nodeA, Secrets: secrets})
						return err
					})
					count("delete", func(ctx context.Context) error {
						_, err := b.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId(), Secrets: secrets})
						return err
					})
				}
				assert.Equal(t, c.rounds, rounds)
			})
		})
	}
}

// slowTarget starts a target with an lvstore, and returns a slow caller for it.
func slowTarget(t *testing.T, release string) slowCaller {
	t.Helper()
	target, err := spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease(release)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, target.Close()) })
	socket := spdkrpc.NewSocket(target.Socket())
	t.Cleanup(func() { assert.NoError(t, socket.Close()) })
	rpc := spdkrpc.NewClient(socket)
	_, err = rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("disk"), NumBlocks: 64 << 8, BlockSize: 4096})
	require.NoError(t, err)
	_, err = rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: "lvs0"})
	require.NoError(t, err)
	return newSlowCaller(t, socket)
}

// roundsController returns a controller that calls its target through slow, and the secrets for
// calls to that controller.
func roundsController(t *testing.T, slow slowCaller, transport string) (*Controller, map[string]string) {
	t.Helper()
	cfg := config.Config{Placement: config.Placement{ThinOvercommit: 1000}, Nodes: []config.Target{{Name: "t0", RPCURL: "https://t0/", TargetType: transport, TargetAddr: "127.0.0.1", ListenAddr: "127.0.0.1", TargetPort: "4420", ListenPort: "4420"}}}
	b, err := New(&cfg, "", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	credential := config.Credential{Name: "t0", Username: user, Password: password}
	called := spdkrpc.NewClient(slow)
	key := clientKey{"t0", sha256.Sum256(fmt.Appendf(nil, "%q", credential))}
	b.targets.clients[key] = &client{rpc: called, service: b.targets.byName["t0"].Service(called)}
	secret, err := json.Marshal(map[string]any{"rpcTokens": []config.Credential{credential}})
	require.NoError(t, err)
	return b, map[string]string{config.SecretKey: string(secret)}
}

// TestCopiesNeedFewRoundTrips counts the round trips that snapshots and copies need, except those
// within the proxy's method for snapshots.
func TestCopiesNeedFewRoundTrips(t *testing.T) {
	slow := slowTarget(t, "v26.05")
	synctest.Test(t, func(t *testing.T) {
		b, secrets := roundsController(t, slow, config.TargetNVMeTCP)
		rounds := map[string]int{}
		create := func(name string, size int64, from *csi.VolumeContentSource) *csi.Volume {
			r, err := b.CreateVolume(volume.AskOnce(t.Context()), &csi.CreateVolumeRequest{Name: name, VolumeCapabilities: []*csi.VolumeCapability{writer}, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeContentSource: from, Secrets: secrets})
			require.NoError(t, err, name)
			return r.GetVolume()
		}
		count := func(call string, do func()) {
			began := time.Now()
			do()
			rounds[call] = int(time.Since(began) / time.Millisecond)
			synctest.Wait()
		}
		// The second iteration shows the actual cost of each call; the first also includes filling
		// the controller's caches.
		for _, n := range []string{"1", "2"} {
			source := create("pvc-"+n, 4*mib, nil)
			var snap *csi.Snapshot
			count("snapshot", func() {
				r, err := b.CreateSnapshot(volume.AskOnce(t.Context()), &csi.CreateSnapshotRequest{Name: "snap-" + n, SourceVolumeId: source.GetVolumeId(), Secrets: secrets})
				require.NoError(t, err)
				snap = r.GetSnapshot()
			})
			count("restore", func() { create("restored-"+n, 4*mib, fromSnapshot(snap)) })
			count("larger restore", func() { create("larger-restored-"+n, 8*mib, fromSnapshot(snap)) })
			other := create("pvc-other-"+n, 4*mib, nil)
			count("clone", func() { create("cloned-"+n, 4*mib, fromVolume(other)) })
			another := create("pvc-another-"+n, 4*mib, nil)
			count("larger clone", func() { create("larger-cloned-"+n, 8*mib, fromVolume(another)) })
		}
		assert.Equal(t, map[string]int{"snapshot": 3, "restore": 4, "larger restore": 6, "clone": 5, "larger clone": 7}, rounds)
	})
}
