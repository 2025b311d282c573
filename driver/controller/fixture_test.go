package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const (
	user, password = "csi", "correct horse"
	mib            = 1 << 20
	storeMiB       = 400
	nodeA, nodeB   = "node-a", "node-b"
)

// A simTarget is a simulated target behind a gateway that replaces the proxy. The gateway uses
// Basic authentication, and accepts one call per request.
type simTarget struct {
	*spdktest.Target
	name    string
	rpc     *spdkrpc.Client
	gateway *httptest.Server
	mu      sync.Mutex
	lose    string // the method whose next reply is lost
	// unreachable makes the gateway close all connections without executing any calls.
	unreachable bool
	calls       int
	// failures lists the methods of the calls that failed on the target with an internal error.
	failures []string
	// instead maps methods to functions that run in place of the calls. The replies to these calls
	// are lost.
	instead map[string]func()
	// freezes makes the gateway support the proxy's method for snapshots of several volumes.
	freezes bool
	// keys is the directory in which the gateway stores keys.
	keys string
	// changes handles calls of spdkgate_lvol_changes, which the simulated target lacks. If changes
	// is nil, the method does not exist.
	changes func(p spdkrpc.SpdkgateLvolChangesParams) (spdkrpc.ProxyLvolChanges, error)
	// info is the gateway's description of its target. If info is nil, the proxy's method does not
	// exist.
	info *spdkrpc.ProxyTargetInfo
}

func newSimTarget(t *testing.T, name string, stores ...string) *simTarget {
	t.Helper()
	return newSimTargetOf(t, name, storeMiB, stores...)
}

func newSimTargetOf(t *testing.T, name string, sizeMiB uint64, stores ...string) *simTarget {
	t.Helper()
	return newSimTargetWith(t, name, spdktest.Options{}, sizeMiB, stores...)
}

func newSimTargetWith(t *testing.T, name string, options spdktest.Options, sizeMiB uint64, stores ...string) *simTarget {
	t.Helper()
	target, err := spdktest.Start(options)
	require.NoError(t, err)
	socket := spdkrpc.NewSocket(target.Socket())
	s := &simTarget{Target: target, name: name, rpc: spdkrpc.NewClient(socket), keys: t.TempDir(), info: &spdkrpc.ProxyTargetInfo{ExaminesVolumes: new(false)}}
	s.gateway = httptest.NewServer(s.forward(socket))
	t.Cleanup(func() {
		s.gateway.Close()
		assert.NoError(t, socket.Close())
		assert.NoError(t, target.Close())
	})
	for _, store := range stores {
		_, err := s.rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("disk-" + store), NumBlocks: sizeMiB << 8, BlockSize: 4096})
		require.NoError(t, err)
		_, err = s.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk-" + store, LvsName: store})
		require.NoError(t, err)
	}
	return s
}

func (s *simTarget) forward(socket *spdkrpc.Socket) http.HandlerFunc {
	placer := &drivertest.KeyPlacer{Caller: socket, Dir: s.keys, Info: func() *spdkrpc.ProxyTargetInfo {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.info
	}}
	return func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body, _ := io.ReadAll(r.Body)
		var req struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(body, &req) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		f := s.instead[req.Method]
		if s.unreachable {
			f = func() {}
		}
		s.mu.Unlock()
		if f != nil {
			f()
			panic(http.ErrAbortHandler)
		}
		var params any
		if len(req.Params) > 0 {
			params = req.Params
		}
		var result json.RawMessage
		call := placer.Call
		if s.freezes && req.Method == "spdkgate_lvol_snapshot" {
			call = s.snapshotAll
		}
		if s.freezes && req.Method == "spdkgate_lvol_snapshot_barrier" {
			call = passBarrier
		}
		if s.changes != nil && req.Method == "spdkgate_lvol_changes" {
			call = s.answerChanges
		}
		err := call(r.Context(), req.Method, params, &result)
		s.mu.Lock()
		lost := s.lose == req.Method
		if lost {
			s.lose = ""
		}
		s.calls++
		var e *spdkrpc.Error
		if errors.As(err, &e) && e.Code == jsonrpc.CodeInternalError {
			s.failures = append(s.failures, req.Method)
		}
		s.mu.Unlock()
		if lost {
			panic(http.ErrAbortHandler)
		}
		reply := map[string]any{"jsonrpc": "2.0", "id": req.ID, "result": result}
		switch {
		case spdkrpc.KindOf(err) == spdkrpc.Unreachable && e.Code == 0:
			reply = map[string]any{"jsonrpc": "2.0", "id": req.ID, "error": jsonrpc.Errorf(jsonrpc.CodeUnreachable, "target is down")}
		case spdkrpc.KindOf(err) == spdkrpc.OutcomeUnknown:
			reply = map[string]any{"jsonrpc": "2.0", "id": req.ID, "error": jsonrpc.Errorf(jsonrpc.CodeOutcomeUnknown, "no reply")}
		case errors.As(err, &e):
			reply = map[string]any{"jsonrpc": "2.0", "id": req.ID, "error": map[string]any{"code": e.Code, "message": e.Message}}
		}
		_ = json.NewEncoder(w).Encode(reply)
	}
}

// loseReplyOf makes the target execute the next call of method, but lose the reply.
func (s *simTarget) loseReplyOf(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = method
}

// failed returns the methods of the calls that failed on the target with an internal error.
func (s *simTarget) failed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.failures)
}

func (s *simTarget) lvols(t *testing.T) (names []string) {
	t.Helper()
	lvols, err := s.rpc.BdevLvolGetLvols(context.Background(), spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	for _, l := range lvols {
		names = append(names, l.Alias)
	}
	return names
}

func (s *simTarget) free(t *testing.T) (clusters uint64) {
	t.Helper()
	stores, err := s.rpc.BdevLvolGetLvstores(context.Background(), spdkrpc.BdevLvolGetLvstoresParams{})
	require.NoError(t, err)
	for _, st := range stores {
		clusters += st.FreeClusters
	}
	return clusters
}

func secretsFor(names ...string) map[string]string {
	var tokens []config.Credential
	for _, n := range names {
		tokens = append(tokens, config.Credential{Name: n, Username: user, Password: password})
	}
	text, _ := json.Marshal(map[string]any{"rpcTokens": tokens})
	return map[string]string{config.SecretKey: string(text)}
}

// A testController is a controller with simulated targets.
type testController struct {
	*Controller
	targets []*simTarget
	secrets map[string]string
	logs    *bytes.Buffer
}

// newTestController returns a controller whose configuration allows it to fill all targets.
func newTestController(t *testing.T, targets ...*simTarget) *testController {
	t.Helper()
	return newTestControllerOf(t, config.Config{Placement: config.Placement{Candidates: 9, ThinOvercommit: 100, ReservePercent: new(0.0)}}, targets...)
}

// newTestControllerWith returns a controller whose only target exports volumes over the given
// transport.
func newTestControllerWith(t *testing.T, transport string, target *simTarget) *testController {
	t.Helper()
	return newTestControllerOf(t, config.Config{Nodes: []config.Target{{TargetType: transport}}}, target)
}

// newTestControllerOf returns a controller with a configuration that may already contain an entry
// for each target.
func newTestControllerOf(t *testing.T, c config.Config, targets ...*simTarget) *testController {
	t.Helper()
	b := &testController{targets: targets, logs: &bytes.Buffer{}}
	var names []string
	for i, s := range targets {
		if i == len(c.Nodes) {
			c.Nodes = append(c.Nodes, config.Target{})
		}
		n := &c.Nodes[i]
		n.Name, n.RPCURL, n.TargetType = s.name, s.gateway.URL, cmp.Or(n.TargetType, config.TargetNVMeTCP)
		if len(n.Addresses) == 0 {
			n.TargetAddr = "127.0.0.1"
		}
		names = append(names, s.name)
	}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	cfg, err := config.Parse(text)
	require.NoError(t, err)
	b.secrets = secretsFor(names...)
	b.Controller, err = New(cfg, "", slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

var writer = drivertest.Writer()

func (b *testController) request(name string, size int64) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapabilities: []*csi.VolumeCapability{writer}, Secrets: b.secrets,
	}
}

func (b *testController) create(t *testing.T, name string, size int64) *csi.Volume {
	t.Helper()
	resp, err := b.CreateVolume(t.Context(), b.request(name, size))
	require.NoError(t, err)
	return resp.GetVolume()
}

func (b *testController) publish(ctx context.Context, v *csi.Volume, node string) (*csi.ControllerPublishVolumeResponse, error) {
	return b.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: v.GetVolumeId(), NodeId: node, VolumeCapability: writer, Secrets: b.secrets, VolumeContext: v.GetVolumeContext(),
	})
}

func (b *testController) unpublish(ctx context.Context, id, node string) error {
	_, err := b.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node, Secrets: b.secrets})
	return err
}

func (b *testController) delete(ctx context.Context, id string) error {
	_, err := b.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id, Secrets: b.secrets})
	return err
}
