package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A cost counts the RPCs of a CSI call, and the bytes that the call sends and receives.
type cost struct{ rpcs, sent, received int }

// A costMeter adds up the cost of the calls made through it.
type costMeter struct {
	mu  sync.Mutex
	sum cost
}

func (m *costMeter) measure(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var numbered struct {
			ID json.RawMessage `json:"id"`
		}
		_ = json.Unmarshal(body, &numbered)
		counted := &countingWriter{ResponseWriter: w}
		next(counted, r)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.sum.rpcs++
		m.sum.sent += len(body) - len(numbered.ID) // ids get longer with each call
		m.sum.received += counted.n - len(numbered.ID)
	}
}

type countingWriter struct {
	http.ResponseWriter
	n int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n += len(p)
	return w.ResponseWriter.Write(p)
}

func (m *costMeter) take() cost {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() { m.sum = cost{} }()
	return m.sum
}

// listsAll contains the names of the calls that read all exports of a target, because SPDK cannot
// return a single iSCSI target. These calls transfer more bytes as the number of exported volumes
// grows, but make no additional RPCs.
var listsAll = []string{"iscsi publish again", "iscsi unpublish", "iscsi delete"}

// TestCallCostDoesNotGrowWithVolumes compares the cost of the calls on a target with few volumes
// and on a target with many volumes.
func TestCallCostDoesNotGrowWithVolumes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	const few = 10
	for release, many := range map[string]int{"v24.01": 1_000, "v26.05": mostVolumes, "v26.09": 1_000} {
		t.Run(release, func(t *testing.T) {
			target := newSimTargetWith(t, "t0", spdktest.Options{Release: rpcschema.MustRelease(release)}, 128, "lvs0")
			meter := &costMeter{}
			target.gateway.Config.Handler = meter.measure(target.gateway.Config.Handler.ServeHTTP)
			beside := func(n int) map[string]cost {
				costs := map[string]cost{}
				for _, transport := range []string{config.TargetNVMeTCP, config.TargetISCSI} {
					cfg := config.Config{Nodes: []config.Target{{TargetType: transport}}, Placement: config.Placement{ThinOvercommit: 1000, TargetTimeout: "1m"}}
					b := newTestControllerOf(t, cfg, target)
					b.readSizes(t)
					for i := range 1 + n/100 {
						_, err := b.publish(t.Context(), b.create(t, fmt.Sprintf("%s-%d", transport, i), 1*mib), nodeB)
						require.NoError(t, err)
					}
					for call, c := range b.costs(t, meter, fmt.Sprint("pvc-", transport, "-", n%7)) {
						costs[transport+" "+call] = c
					}
				}
				return costs
			}
			target.addVolumes(t, 0, few)
			least := beside(few)
			target.addVolumes(t, few, many)
			most := beside(many)
			for call, c := range least {
				assert.Equal(t, c.rpcs, most[call].rpcs, call)
				if !slices.Contains(listsAll, call) {
					assert.Equal(t, c.sent, most[call].sent, call)
					// A volume's size may be read while its export is being deleted, so the
					// response may or may not contain the bdev's claim.
					assert.InEpsilon(t, c.received, most[call].received, 0.05, call)
				}
			}
		})
	}
}

// addVolumes adds volumes as if other clients had created them, and exports one in ten.
func (s *simTarget) addVolumes(t *testing.T, from, to int) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	const inFlight = 16
	g.SetLimit(inFlight)
	for i := from; i < to; i++ {
		g.Go(func() error {
			id, err := s.rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvolName: fmt.Sprintf("other-%06d", i), LvsName: new("lvs0"), SizeInMiB: 1, ThinProvision: new(true)})
			if err != nil || i%10 > 0 {
				return err
			}
			nqn := export.NQN(id)
			if err := s.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: nqn, SerialNumber: new("OTHER"), MaxNamespaces: new(uint32(1))}); err != nil {
				return err
			}
			_, err = s.rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{NQN: nqn, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: id}})
			return err
		})
	}
	require.NoError(t, g.Wait())
}

// costs measures each call for one volume. It first makes the same calls for another volume, so
// that the controller has already cached its information about the target.
func (b *testController) costs(t *testing.T, meter *costMeter, name string) map[string]cost {
	t.Helper()
	costs := map[string]cost{}
	for _, name := range []string{name + "-a", name + "-b"} {
		var v *csi.Volume
		for _, call := range []struct {
			name string
			do   func() error
		}{
			{"create", func() error { v = b.create(t, name, 1*mib); return nil }},
			{"publish", func() error { _, err := b.publish(t.Context(), v, nodeA); return err }},
			{"publish again", func() error { _, err := b.publish(t.Context(), v, nodeA); return err }},
			{"expand", func() error {
				_, err := b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: v.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 8 * mib}, Secrets: b.secrets})
				return err
			}},
			{"unpublish", func() error { return b.unpublish(t.Context(), v.GetVolumeId(), nodeA) }},
			{"delete", func() error { return b.delete(t.Context(), v.GetVolumeId()) }},
		} {
			meter.take()
			require.NoError(t, call.do(), call.name)
			costs[call.name] = meter.take()
		}
	}
	return costs
}

// readSizes makes the controller read the sizes of all volumes before the measured calls.
func (b *testController) readSizes(t *testing.T) {
	t.Helper()
	service, err := b.Controller.targets.open("t0", map[string]config.Credential{"t0": {Name: "t0", Username: user, Password: password}})
	require.NoError(t, err)
	stores, err := service.Stores(t.Context())
	require.NoError(t, err)
	_, err = service.Usage(t.Context(), stores[0])
	for err != nil && t.Context().Err() == nil { // Usage times out after a minute, which is too short on a busy machine
		_, err = service.Usage(t.Context(), stores[0])
	}
	require.NoError(t, err)
}
