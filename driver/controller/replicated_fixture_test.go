package controller

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/witness"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// fakeWitnesses stores witnesses in memory and enforces the rules of package witness.
type fakeWitnesses struct {
	mu      sync.Mutex
	records map[string]*witness.Record
	count   int
	fail    error
	calls   int
	failAt  int // index of the call that fails with fail; 0 for all
	// onPublish is called after the witness has been changed.
	onPublish func()
	// onGet is called in each read, with the number of reads so far, and may change the records.
	onGet func(count int)
	gets  int
}

// failure counts a call, and returns its error. The caller holds f.mu.
func (f *fakeWitnesses) failure() error {
	f.calls++
	if f.failAt > 0 && f.failAt != f.calls {
		return nil
	}
	return f.fail
}

func (f *fakeWitnesses) with(name string, do func(*witness.Record) error) (witness.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.records[name]
	if err := f.failure(); err != nil {
		return witness.Record{}, err
	}
	if r == nil {
		return witness.Record{}, witness.ErrNotFound
	}
	err := do(r)
	return *r, err
}

func (f *fakeWitnesses) Get(_ context.Context, name string) (witness.Record, error) {
	return f.with(name, func(*witness.Record) error {
		if f.gets++; f.onGet != nil {
			f.onGet(f.gets)
		}
		return nil
	})
}

func (f *fakeWitnesses) Create(_ context.Context, name string, places ...witness.Place) (witness.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure(); err != nil {
		return witness.Record{}, err
	}
	f.count++
	r := &witness.Record{Name: name, UID: fmt.Sprint("uid-", f.count), Witness: replica.NewWitness(replica.SetOf(0, 1))}
	copy(r.Places[:], places)
	f.records[name] = r
	return *r, nil
}

func (f *fakeWitnesses) Publish(_ context.Context, name, node string) (witness.Record, error) {
	r, err := f.with(name, func(r *witness.Record) error { r.Witness = r.Witness.Publish(node); return nil })
	if f.onPublish != nil {
		f.onPublish()
	}
	return r, err
}

func (f *fakeWitnesses) Keep(_ context.Context, name string, id replica.ID, place witness.Place) (witness.Record, error) {
	return f.with(name, func(r *witness.Record) error {
		if r.Places[id] != place {
			return witness.ErrOther
		}
		w, err := r.Witness.Keep(id)
		r.Witness = w
		return err
	})
}

func (f *fakeWitnesses) BeginDelete(_ context.Context, name string) (witness.Record, error) {
	return f.with(name, func(r *witness.Record) error {
		if r.Witness.Writer.Node != "" {
			return witness.ErrInUse
		}
		r.Deleting = true
		return nil
	})
}

func (f *fakeWitnesses) Delete(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure(); err != nil {
		return err
	}
	delete(f.records, name)
	return nil
}

// A replicatedController is a controller with two storage servers and witnesses.
type replicatedController struct {
	*testController
	witnesses *fakeWitnesses
}

func newReplicatedController(t *testing.T) *replicatedController {
	t.Helper()
	return newReplicatedControllerOf(t, config.Config{Nodes: make([]config.Target, 2)})
}

// newReplicatedControllerOf returns a controller with a storage server for each node in cfg.
func newReplicatedControllerOf(t *testing.T, cfg config.Config) *replicatedController {
	t.Helper()
	var targets []*simTarget
	for i := range cfg.Nodes {
		targets = append(targets, newSimTarget(t, fmt.Sprint("t", i), "lvs0"))
	}
	b := newTestControllerOf(t, cfg, targets...)
	b.credentialsFile = filepath.Join(t.TempDir(), "secret.json")
	require.NoError(t, os.WriteFile(b.credentialsFile, []byte(b.secrets["secret.json"]), 0o600))
	w := &fakeWitnesses{records: map[string]*witness.Record{}}
	b.SetWitnesses(w)
	return &replicatedController{b, w}
}

// request returns a request to create a volume with two replicas.
func (b *replicatedController) request(name string, bytes int64) *csi.CreateVolumeRequest {
	req := b.testController.request(name, bytes)
	req.Parameters = map[string]string{"replicas": "2"}
	return req
}

func (b *replicatedController) createFrom(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.Volume, error) {
	resp, err := b.CreateVolume(ctx, req)
	return resp.GetVolume(), err
}

func (b *replicatedController) make(t *testing.T) (*csi.Volume, request.VolumeID) {
	t.Helper()
	v, err := b.createFrom(t.Context(), b.request("pvc-1", 9*mib))
	require.NoError(t, err)
	id, err := request.ParseVolumeID(v.GetVolumeId())
	require.NoError(t, err)
	return v, id
}

// stage changes the witness as a node does when it stages the volume with all replicas.
func (b *replicatedController) stage(t *testing.T, id request.VolumeID) {
	t.Helper()
	r := b.witnesses.records[id.UUID]
	var err error
	if !r.Witness.Created {
		r.Witness, err = r.Witness.Create(r.Witness.Writer)
		require.NoError(t, err)
	}
	r.Witness, err = r.Witness.Start(r.Witness.Writer, replica.SetOf(0, 1), 0)
	require.NoError(t, err)
}

// server returns the target that has the replica with the given number.
func (b *replicatedController) server(id request.VolumeID, number replica.ID) *simTarget {
	for _, s := range b.targets {
		if s.name == b.witnesses.records[id.UUID].Places[number].Server {
			return s
		}
	}
	return nil
}

// exports returns the hosts of each subsystem with a namespace.
func (s *simTarget) exports(t *testing.T) map[string][]string {
	t.Helper()
	subs, err := s.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(t, err)
	found := map[string][]string{}
	for _, sub := range subs {
		if len(sub.Namespaces) > 0 {
			found[sub.NQN] = []string{}
			for _, h := range sub.Hosts {
				found[sub.NQN] = append(found[sub.NQN], h.NQN)
			}
		}
	}
	return found
}

// down makes a server unreachable until up is called.
func (s *simTarget) down() (up func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreachable = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unreachable = false
	}
}
