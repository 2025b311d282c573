package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/request"
)

var (
	original = request.VolumeID{Target: "old", UUID: "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"}
	copied   = request.VolumeID{Target: "new", UUID: "5d1fa6ea-6cd5-4a51-8a0b-3f1b47a5d9f0"}
)

var errInjected = errors.New("injected failure")

// A farm has volumes that are files, and serves them as a controller and a connector do. Its step-th call, counted over both,
// fails: before it is executed, or afterwards.
type farm struct {
	t       *testing.T
	dir     string
	node    map[string]string // by volume
	named   map[string]string // by volume
	used    map[string]bool
	growing int64 // by how much larger volumes are made than asked for
	// attached counts devices.
	attached map[string]int
	calls    int
	failAt   int
	executed bool
	// requires is the authentication that CreateVolume puts into volume contexts.
	requires string
	// authenticated are the volumes that were published with keys.
	authenticated []string
	// connecting runs when a volume is attached.
	connecting func(id string)
}

func newFarm(t *testing.T, contents []byte) *farm {
	f := &farm{t: t, dir: t.TempDir(), node: map[string]string{}, named: map[string]string{}, used: map[string]bool{}, attached: map[string]int{}}
	f.named[original.String()] = "pvc-1"
	f.used[original.String()] = true
	require.NoError(t, os.WriteFile(f.file(original.String()), contents, 0o600))
	return f
}

func (f *farm) mover() Mover { return Mover{Controller: f, Connector: f} }

func (f *farm) file(id string) string { return filepath.Join(f.dir, id) }

func (f *farm) contents(id request.VolumeID) []byte {
	text, err := os.ReadFile(f.file(id.String()))
	require.NoError(f.t, err)
	return text
}

func (f *farm) fails() (before, after error) {
	f.calls++
	switch {
	case f.calls != f.failAt:
		return nil, nil
	case f.executed:
		return nil, errInjected
	}
	return errInjected, nil
}

func (f *farm) CreateVolume(_ context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	before, after := f.fails()
	if before != nil {
		return nil, before
	}
	id := copied.String()
	if req.GetParameters()["target"] == "itself" {
		id = original.String()
	} else if f.named[id] == "" {
		f.named[id] = req.GetName()
		require.NoError(f.t, os.WriteFile(f.file(id), nil, 0o600))
		require.NoError(f.t, os.Truncate(f.file(id), req.GetCapacityRange().GetRequiredBytes()+f.growing))
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: req.GetCapacityRange().GetRequiredBytes() + f.growing, VolumeContext: map[string]string{hostauth.KeyMethod: f.requires}}}, after
}

func (f *farm) DeleteVolume(_ context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	before, after := f.fails()
	if before != nil {
		return nil, before
	}
	require.Empty(f.t, f.node[req.GetVolumeId()], "deleted while published")
	delete(f.named, req.GetVolumeId())
	require.NoError(f.t, os.Remove(f.file(req.GetVolumeId())))
	return &csi.DeleteVolumeResponse{}, after
}

func (f *farm) ControllerPublishVolume(_ context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	before, after := f.fails()
	if before != nil {
		return nil, before
	}
	id := req.GetVolumeId()
	if node := f.node[id]; node != "" && node != req.GetNodeId() {
		return nil, fmt.Errorf("%w: node %s has it", export.ErrInUse, node)
	}
	if method := req.GetVolumeContext()[hostauth.KeyMethod]; method != "" {
		if req.GetSecrets()[hostauth.SecretDHCHAPKey] == "" {
			return nil, hostauth.ErrMissing
		}
		f.authenticated = append(f.authenticated, id)
	}
	f.node[id] = req.GetNodeId()
	parsed, err := request.ParseVolumeID(id)
	require.NoError(f.t, err)
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{
		connect.KeyTargetType: "tcp", connect.KeyTargetAddr: "127.0.0.1", connect.KeyTargetPort: "4420", connect.KeyNQN: export.NQN(parsed.UUID), connect.KeyNSUUID: parsed.UUID,
		request.KeyMayFormat: fmt.Sprint(!f.used[id]), hostauth.KeyMethod: req.GetVolumeContext()[hostauth.KeyMethod],
	}}, after
}

func (f *farm) ControllerUnpublishVolume(_ context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	before, after := f.fails()
	if before != nil {
		return nil, before
	}
	require.Zero(f.t, f.attached[req.GetVolumeId()], "unpublished while attached")
	if f.node[req.GetVolumeId()] == req.GetNodeId() {
		delete(f.node, req.GetVolumeId())
	}
	f.used[req.GetVolumeId()] = true
	return &csi.ControllerUnpublishVolumeResponse{}, after
}

func (f *farm) Inspect(_ context.Context, id request.VolumeID, name, nodeID string) (size int64, named, published bool, err error) {
	if before, after := f.fails(); before != nil || after != nil {
		return 0, false, false, errInjected
	}
	st, err := os.Stat(f.file(id.String()))
	if err != nil {
		return 0, false, false, err
	}
	return st.Size(), f.named[id.String()] == name, f.node[id.String()] == nodeID, nil
}

func (f *farm) id(e connect.Export) string {
	if e.NSUUID == original.UUID {
		return original.String()
	}
	return copied.String()
}

func (f *farm) Connect(_ context.Context, e connect.Export) (connect.Device, error) {
	before, after := f.fails()
	if before != nil || after != nil { // Connect undoes its steps
		return connect.Device{}, errInjected
	}
	id := f.id(e)
	require.Equal(f.t, NodeOf(original), f.node[id], "attached without being published")
	require.NoError(f.t, e.CheckKeys())
	f.attached[id]++
	if f.connecting != nil {
		f.connecting(id)
	}
	return connect.Device{Path: f.file(id)}, nil
}

func (f *farm) Disconnect(_ context.Context, e connect.Export) error {
	before, after := f.fails()
	if before != nil {
		return before
	}
	f.attached[f.id(e)] = 0
	return after
}

func (f *farm) Find(context.Context, connect.Export) (connect.Device, error) {
	return connect.Device{}, connect.ErrNotConnected
}

func (f *farm) Rescan(context.Context, connect.Export, int64) (int64, error) {
	return 0, connect.ErrNotConnected
}

// random returns contents with a hole of zeroes in the middle, which end in the middle of a chunk.
func random() []byte {
	b := make([]byte, 5*chunkBytes+3*markBytes)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		if i < 2*chunkBytes || i > 3*chunkBytes+17 {
			b[i] = byte(r.Uint32())
		}
	}
	return b
}

func TestMove(t *testing.T) {
	want := random()
	f := newFarm(t, want)
	f.growing = chunkBytes
	var phases []Progress
	m := f.mover()
	m.Progress = func(p Progress) { phases = append(phases, p) }
	r, err := m.Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, copied.String(), r.id())
	assert.Equal(t, append(bytes.Clone(want), make([]byte, chunkBytes)...), f.contents(copied))
	assert.Equal(t, want, f.contents(original), "the original is only read")
	assert.Len(t, r.SHA256, 64)
	assert.False(t, r.Empty)
	assert.Equal(t, int64(len(want)-chunkBytes-markBytes), r.WrittenBytes, "a chunk of zeroes is not written, and the mark's place is not counted")
	assert.Contains(t, phases, Progress{"copy", int64(len(want)), int64(len(want))})
	assert.Equal(t, Progress{"verify", int64(len(want)), int64(len(want))}, phases[len(phases)-1])
	assert.Equal(t, map[string]string{original.String(): NodeOf(original)}, f.node, "the original is kept from nodes, the copy is not")

	// A repeated move does not overwrite the copy, which may be newer by now.
	f.node[copied.String()] = "worker-1"
	_, err = f.mover().Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, export.ErrInUse)
	delete(f.node, copied.String())
	again, err := f.mover().Copy(t.Context(), original, nil, nil)
	require.NoError(t, err, "nothing was changed")
	assert.Equal(t, r.SHA256, again.SHA256)
	assert.Zero(t, again.WrittenBytes)
	for _, at := range []int{0, 4 * chunkBytes} {
		text := f.contents(copied)
		text[at]++
		require.NoError(t, os.WriteFile(f.file(copied.String()), text, 0o600))
		_, err = f.mover().Copy(t.Context(), original, nil, nil)
		require.ErrorIs(t, err, ErrCopied)
		assert.Equal(t, text, f.contents(copied), "what was written to the copy stays")
		text[at]--
		require.NoError(t, os.WriteFile(f.file(copied.String()), text, 0o600))
	}
	assert.Equal(t, NodeOf(original), f.node[original.String()], "still kept from nodes")

	delete(f.node, copied.String())
	require.NoError(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil))
	assert.NoFileExists(t, f.file(original.String()))
	assert.Empty(t, f.node)
}

// A move that fails or dies at any of its calls leaves the original as it was, and is completed by repeating it. An unfinished
// copy never passes for a complete one.
func TestMoveIsInterrupted(t *testing.T) {
	want := random()[:chunkBytes+3*markBytes]
	points := 0
	for _, executed := range []bool{false, true} {
		for at := 1; ; at++ {
			f := newFarm(t, want)
			f.failAt, f.executed = at, executed
			_, err := f.mover().Copy(t.Context(), original, nil, nil)
			if f.calls < at {
				require.NoError(t, err)
				break
			}
			points++
			where := fmt.Sprintf("call %d, executed %v: %v", at, executed, err)
			require.ErrorIs(t, err, errInjected, where)
			assert.Equal(t, want, f.contents(original), where)
			complete := f.named[copied.String()] != "" && bytes.Equal(want, f.contents(copied))
			if !complete && f.node[copied.String()] == "" && f.named[copied.String()] != "" && f.used[copied.String()] {
				t.Errorf("%s: an unfinished copy could be taken for a volume", where)
			}
			if !complete {
				err := f.mover().DeleteOriginal(t.Context(), original, copied, nil)
				require.Error(t, err, where)
				assert.Equal(t, want, f.contents(original), where)
			}
			f.attached = map[string]int{} // as when the machine restarts
			_, err = f.mover().Copy(t.Context(), original, nil, nil)
			require.NoError(t, err, where)
			assert.Equal(t, want, f.contents(copied), where)
			assert.Equal(t, NodeOf(original), f.node[original.String()], where)
		}
	}
	assert.Greater(t, points, 15)
	t.Logf("%d points", points)
}

// The process may die while data is copied.
func TestCopyGoesOn(t *testing.T) {
	want := random()
	f := newFarm(t, want)
	ctx, cancel := context.WithCancel(t.Context())
	f.connecting = func(id string) {
		if id == copied.String() {
			cancel()
		}
	}
	_, err := f.mover().Copy(ctx, original, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, markOf(original.String()), f.contents(copied)[:markBytes])
	assert.Equal(t, map[string]string{copied.String(): NodeOf(original)}, f.node, "the original is free again")
	assert.Zero(t, f.attached[original.String()]+f.attached[copied.String()])
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), ErrNotLocked)

	// Even if the target forgets to whom it was exported, an unfinished copy is known by its mark.
	require.NoError(t, os.WriteFile(f.file(copied.String()), append(markOf(original.String()), want[markBytes:]...), 0o600))
	f.node = map[string]string{original.String(): NodeOf(original)}
	f.used[copied.String()] = true
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), ErrUnfinished)
	delete(f.node, original.String())
	f.connecting = nil
	r, err := f.mover().Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.Zero(t, r.WrittenBytes, "all was there")
	assert.False(t, r.Empty)
	assert.Equal(t, want, f.contents(copied))
}

func TestCopyThatDiffers(t *testing.T) {
	want := random()
	f := newFarm(t, want)
	m := f.mover()
	m.Progress = func(p Progress) {
		if p.Phase == "copy" && p.Done == p.Total {
			file, err := os.OpenFile(f.file(copied.String()), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = file.WriteAt([]byte{want[chunkBytes+5] + 1}, chunkBytes+5)
			require.NoError(t, errors.Join(err, file.Close()))
		}
	}
	_, err := m.Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrDiffers)
	assert.ErrorContains(t, err, "bytes 1048576 to 2097152")
	assert.Equal(t, markOf(original.String()), f.contents(copied)[:markBytes], "it is still unfinished")
	assert.NotContains(t, f.node, original.String())
}

func TestVolumesThatAreNotMoved(t *testing.T) {
	f := newFarm(t, random())
	f.node[original.String()] = "worker-1"
	_, err := f.mover().Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, export.ErrInUse)
	assert.Equal(t, "worker-1", f.node[original.String()])
	assert.Empty(t, f.named[copied.String()])
	delete(f.node, original.String())

	_, err = f.mover().Copy(t.Context(), original, nil, map[string]string{"target": "itself"})
	require.ErrorIs(t, err, request.ErrInvalid)
	assert.Equal(t, random(), f.contents(original))
	assert.Empty(t, f.node)
	_, err = f.mover().Copy(t.Context(), request.VolumeID{Target: "old", UUID: copied.UUID}, nil, nil)
	require.ErrorIs(t, err, os.ErrNotExist)

	// A volume that is not the copy, or that somebody wrote to.
	newer := append([]byte("newer"), random()[5:]...)
	require.NoError(t, os.WriteFile(f.file(copied.String()), newer, 0o600))
	f.named[copied.String()] = "pvc-2"
	f.node[original.String()] = NodeOf(original)
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), ErrNotCopy)
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, original, nil), ErrNotCopy)
	assert.FileExists(t, f.file(original.String()))
	require.NoError(t, f.mover().Keep(t.Context(), original))
	assert.Empty(t, f.node)
	f.named[copied.String()] = copyName(original)
	_, err = f.mover().Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrCopied)
	assert.NotContains(t, f.node, original.String(), "the original is as before")
	assert.Equal(t, newer, f.contents(copied))
}

// A volume without data stays one that may be formatted.
func TestEmptyVolume(t *testing.T) {
	f := newFarm(t, make([]byte, 2*chunkBytes))
	r, err := f.mover().Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.True(t, r.Empty)
	assert.Zero(t, r.WrittenBytes)
	assert.Equal(t, make([]byte, 2*chunkBytes), f.contents(copied))
	f = newFarm(t, append(make([]byte, 2*chunkBytes), bytes.Repeat([]byte{1}, markBytes)...))
	for range 2 {
		r, err = f.mover().Copy(t.Context(), original, nil, nil)
		require.NoError(t, err)
		assert.False(t, r.Empty, "a file system may begin with zeroes")
	}
}

// Both volumes are exported with authentication if they require it.
func TestMoveAuthenticates(t *testing.T) {
	f := newFarm(t, random())
	f.requires = "dhchap"
	authenticates := map[string]string{hostauth.KeyMethod: "dhchap", "other": "x"}
	_, err := f.mover().Copy(t.Context(), original, authenticates, nil)
	require.ErrorIs(t, err, hostauth.ErrMissing)
	assert.Empty(t, f.authenticated)

	m := f.mover()
	const key = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
	m.Secrets = map[string]string{hostauth.SecretDHCHAPKey: key}
	_, err = m.Copy(t.Context(), original, authenticates, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{original.String(), copied.String()}, f.authenticated)
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, authenticates), hostauth.ErrMissing)
	require.NoError(t, m.DeleteOriginal(t.Context(), original, copied, authenticates))
	assert.Equal(t, copied.String(), f.authenticated[2])
}
