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

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A slowCaller makes each call take one millisecond of a bubble's time, so that a CSI call takes as many milliseconds as it has
// rounds: RPCs that wait for each other. It passes the calls on to goroutines outside of the bubble, because a bubble's time
// stands still while one of its goroutines waits for a socket.
type slowCaller struct{ idle chan *passer }

type passer struct {
	calls   chan passed
	answers chan error
}

type passed struct {
	method         string
	params, result any
}

// newSlowCaller is called outside of the bubble.
func newSlowCaller(t *testing.T, to spdkrpc.Caller) slowCaller {
	t.Helper()
	const atOnce = 64
	s := slowCaller{make(chan *passer, atOnce)}
	for range atOnce {
		p := &passer{make(chan passed), make(chan error)}
		go func() {
			for c := range p.calls {
				p.answers <- to.Call(context.Background(), c.method, c.params, c.result)
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

// TestRounds counts the rounds of each call: how many RPCs it sends one after the other. A real target takes 4 to 8 ms for
// each round, however many RPCs it has.
func TestRounds(t *testing.T) {
	for _, c := range []struct {
		release, transport string
		parameters         map[string]string
		rounds             map[string]int
	}{
		{"v26.05", driver.TargetNVMeTCP, nil, map[string]int{"create": 3, "publish": 4, "unpublish": 2, "delete": 2}},
		{"v26.05", driver.TargetNVMeTCP, map[string]string{"thin": "false"}, map[string]int{"create": 6, "publish": 4, "unpublish": 3, "delete": 2}},
		{"v26.09", driver.TargetNVMeTCP, nil, map[string]int{"create": 3, "publish": 5, "unpublish": 2, "delete": 2}},
		{"v24.01", driver.TargetNVMeTCP, nil, map[string]int{"create": 6, "publish": 7, "unpublish": 3, "delete": 2}},
		{"v26.05", driver.TargetISCSI, nil, map[string]int{"create": 3, "publish": 6, "unpublish": 4, "delete": 2}},
	} {
		t.Run(fmt.Sprint(c.release, " ", c.transport, " ", c.parameters), func(t *testing.T) {
			target, err := spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease(c.release)})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, target.Close()) })
			socket := spdkrpc.NewSocket(target.Socket())
			t.Cleanup(func() { assert.NoError(t, socket.Close()) })
			rpc := spdkrpc.NewClient(socket)
			_, err = rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("disk"), NumBlocks: 64 << 8, BlockSize: 4096})
			require.NoError(t, err)
			_, err = rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: "lvs0"})
			require.NoError(t, err)
			slow := newSlowCaller(t, socket)
			synctest.Test(t, func(t *testing.T) {
				config := driver.Config{Nodes: []driver.TargetConfig{{Name: "t0", RPCURL: "https://t0/", TargetType: c.transport, TargetAddr: "127.0.0.1", ListenAddr: "127.0.0.1", TargetPort: "4420", ListenPort: "4420"}}}
				b, err := New(&config, "", slog.New(slog.DiscardHandler))
				require.NoError(t, err)
				credential := driver.Credential{Name: "t0", Username: user, Password: password}
				called := spdkrpc.NewClient(slow)
				key := clientKey{"t0", sha256.Sum256(fmt.Appendf(nil, "%q", credential))}
				b.targets.clients[key] = &client{rpc: called, service: b.targets.byName["t0"].Service(called)}
				secret, err := json.Marshal(map[string]any{"rpcTokens": []driver.Credential{credential}})
				require.NoError(t, err)
				secrets := map[string]string{driver.SecretKey: string(secret)}
				rounds := map[string]int{}
				// The second volume shows what each call costs; the first one, what a controller learns once.
				for _, name := range []string{"pvc-1", "pvc-2"} {
					count := func(call string, do func() error) {
						began := time.Now()
						require.NoError(t, do(), call)
						rounds[call] = int(time.Since(began) / time.Millisecond)
						synctest.Wait()
					}
					var v *csi.Volume
					capability := writer
					count("create", func() error {
						r, err := b.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability}, CapacityRange: &csi.CapacityRange{RequiredBytes: 4 * mib}, Parameters: c.parameters, Secrets: secrets})
						v = r.GetVolume()
						return err
					})
					count("publish", func() error {
						_, err := b.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: nodeA, VolumeCapability: capability, VolumeContext: v.GetVolumeContext(), Secrets: secrets})
						return err
					})
					count("unpublish", func() error {
						_, err := b.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: nodeA, Secrets: secrets})
						return err
					})
					count("delete", func() error {
						_, err := b.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId(), Secrets: secrets})
						return err
					})
				}
				assert.Equal(t, c.rounds, rounds)
			})
		})
	}
}
