package move

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
)

// These are the kinds of failure. Other errors come from the controller and the connector.
var (
	// ErrDiffers means that the copy's contents differ from the original's. The original is
	// unchanged.
	ErrDiffers = errors.New("the copy differs from the original")
	// ErrChanged means that the original was resized, or clusters of it were allocated or freed,
	// while it was being copied.
	ErrChanged = errors.New("the original was written to or resized while it was copied")
	// ErrCopied means that the volume has been copied before, and that the original or the copy has
	// changed since then.
	ErrCopied = errors.New("already copied")
	// ErrUnfinished means that the copy is not complete.
	ErrUnfinished = errors.New("the copy is not complete: repeat the move")
	// ErrNotLocked means that another node may have attached the original since it was copied.
	ErrNotLocked = errors.New("other nodes could have attached the original since it was copied")
	// ErrOtherCopy means that the latest move of the volume is making, or has made, a different
	// copy.
	ErrOtherCopy = errors.New("the latest move of the volume makes a different copy")
	// ErrOldLock means that an earlier release has locked the original without recording the copy.
	ErrOldLock = errors.New("a move by an earlier release of spdk-csi has locked the volume, and has not recorded its copy")
)

// A Controller provides the calls of CSI's controller service that a move needs, and Inspect.
type Controller interface {
	CreateVolume(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error)
	DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error)
	CreateSnapshot(context.Context, *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error)
	DeleteSnapshot(context.Context, *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error)
	ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error)
	ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error)
	// Inspect describes a volume, including whether it is published to a node.
	Inspect(ctx context.Context, id request.VolumeID, nodeID string) (inventory.Inspected, error)
	// Allocated reports which clusters of a volume are allocated or, if base is not empty, may
	// differ from the snapshot with the UUID base.
	Allocated(ctx context.Context, id request.VolumeID, base string) (inventory.Allocation, error)
	// FindNamed returns the ids of the snapshot and the volume that were created with the given
	// names on the target of volume id. An id is empty if the object does not exist.
	FindNamed(ctx context.Context, id request.VolumeID, snapshotName, volumeName string) (snapshot, volume string, err error)
}

// A Mover moves volumes.
type Mover struct {
	Controller Controller
	// Connector returns a connector that connects to targets as the given node.
	Connector func(node string) (connect.Connector, error)
	// Topology contains the labels of this machine, which determine the target addresses that it
	// uses.
	Topology map[string]string
	// Secrets contains the keys that nodes use to authenticate, as in the Secret of a StorageClass.
	// It is required if a volume requires authentication.
	Secrets map[string]string
	// Filesystem means that Kubernetes mounts the file system on the volume. If it is false, the
	// volume may be a raw block device, which is not copied to a target that may load lvstores or
	// RAIDs from its contents.
	Filesystem bool
	// VerifyAll makes Copy verify the copy by reading both volumes completely, including
	// unallocated clusters.
	VerifyAll bool
	// If Copy must read more than the allocated clusters, it logs the reason to Log.
	Log *slog.Logger
	// Pause is the time between attempts of the last query about the original. 0 means 5 s.
	Pause time.Duration
	// Progress, if not nil, is called periodically while data is copied and verified.
	Progress func(Progress)
}

// NodeOf returns the node that a volume and its copy are published to during a move. The name of
// the node depends on the copy, so that the lock on the original identifies the copy of the latest
// move.
func NodeOf(original, copied request.VolumeID) string {
	return hostname.MoveNode(original.UUID, copied.UUID)
}

// oldNodeOf returns the node that earlier releases published a volume to during a move.
func oldNodeOf(original request.VolumeID) string { return "move-" + original.UUID }

// Progress describes the progress of one phase of a move.
type Progress struct {
	Phase       string // "copy" or "verify"
	Done, Total int64  // bytes
}

// A Result describes a verified copy.
type Result struct {
	Volume *csi.Volume
	// SHA256 is the hash of the original's contents, which equal the first SizeBytes of the copy.
	// It is empty if only the changes since Prepare were read.
	SHA256    string
	SizeBytes int64
	// WrittenBytes is less than SizeBytes if parts of the copy already matched, or were zero in the
	// original.
	WrittenBytes int64
	// ReadBytes is the number of bytes read from the original for copying and verification.
	ReadBytes int64
	// Empty means that all bytes in the volume are zero.
	Empty bool
}

func (r Result) id() string { return r.Volume.GetVolumeId() }

// moving is the state of one move: the open devices, and what is known about their chunks.
type moving struct {
	from, to      *device
	marked        bool   // the copy begins with the mark
	data          bool   // verify has found a nonzero byte
	only          []bool // by chunk: copied and verified; nil for all chunks
	zeros         []bool // by chunk: zero in the original
	done, written atomic.Int64
}

// Copy copies a volume to a new volume, which it creates with the parameters of a StorageClass, and
// verifies the copy. volumeContext is the original's volume context, as in its PersistentVolume; it
// may be nil if the original does not require authentication. Copy fails while the volume is
// published to a node. After Copy succeeds, nodes cannot attach the original until Keep or
// DeleteOriginal is called. If Copy fails, the original is unchanged, and a repeated Copy continues
// where the failed call stopped. A complete copy is only verified. After Prepare, Copy copies only
// the changes since Prepare.
func (m Mover) Copy(ctx context.Context, id request.VolumeID, volumeContext, parameters map[string]string) (result Result, err error) {
	was, err := m.Controller.Inspect(ctx, id, oldNodeOf(id))
	switch {
	case err != nil:
		return Result{}, err
	case was.Others:
		return Result{}, fmt.Errorf("lock the original: volume %s: %w: it is published to a node", id, export.ErrInUse)
	case was.Published:
		return Result{}, fmt.Errorf("volume %s: %w: use --keep-original, and repeat the move", id, ErrOldLock)
	}
	if result.Volume, err = m.createCopy(ctx, id, was.SizeBytes, parameters); err != nil {
		return Result{}, err
	}
	copyID, err := request.ParseVolumeID(result.id())
	if err != nil {
		return Result{}, err
	}
	node, locked := NodeOf(id, copyID), was.CopyUUID == copyID.UUID
	if was.CopyUUID != "" && !locked {
		return Result{}, fmt.Errorf("volume %s: %w, %s, and has locked the volume: repeat the move with the parameters of that copy; or use --keep-original, and then move the volume to %s", id, ErrOtherCopy, was.CopyUUID, copyID)
	}

	// Lock the original for this copy only after the copy has been marked as unfinished. A copy
	// without a mark, whose original is locked, was therefore completed under this lock.
	prepared, isNew, err := m.stopPrepare(ctx, id, result.Volume)
	if err != nil {
		return Result{}, err
	}
	earlier, err := m.Controller.Inspect(ctx, copyID, node)
	if err != nil {
		return Result{}, err
	}
	to, mayFormat, err := m.publish(ctx, result.id(), node, result.Volume.GetVolumeContext(), m.Filesystem)
	if err != nil {
		return Result{}, fmt.Errorf("lock the copy: %w", err)
	}
	copied, closeCopy, err := m.attach(ctx, node, to, os.O_RDWR)
	if err != nil {
		return Result{}, fmt.Errorf("attach the copy, %s: %w", result.id(), err)
	}
	defer func() {
		failed := closeCopy()
		if failed == nil && errors.Is(err, ErrCopied) && (!locked || !earlier.Published) {
			// An earlier move has completed the copy, which may be in use.
			failed = m.unpublish(copyID.String(), node)
		}
		err = errors.Join(err, failed)
	}()
	before, base, err := examine(copied, id.String(), mayFormat || isNew)
	if err != nil {
		return Result{}, fmt.Errorf("volume %s: %w", copyID, err)
	}
	switch {
	case before == finished && !locked:
		return Result{}, fmt.Errorf("copy %s to %s: %w: nodes could have attached the original since. To copy it again, delete the copy first", id, copyID, ErrCopied)
	case before == fresh:
		if err = copied.setFirst(markOf(id.String(), "")); err != nil {
			return Result{}, fmt.Errorf("copy %s to %s: %w", id, copyID, err)
		}
	}
	from, _, err := m.publish(ctx, id.String(), node, volumeContext, onlyRead)
	if err != nil {
		return Result{}, fmt.Errorf("lock the original: %w", err)
	}
	complete, attached := false, false
	defer func() {
		if !locked && !complete && !attached {
			err = errors.Join(err, m.unpublish(id.String(), node))
		}
	}()
	original, closeOriginal, err := m.attach(ctx, node, from, os.O_RDONLY)
	if err != nil {
		attached = errors.Is(err, syscall.EBUSY) // by another move of the volume, which needs the lock
		return Result{}, fmt.Errorf("attach the original, %s: %w", id, err)
	}
	defer func() {
		failed := closeOriginal()
		attached, err = failed != nil, errors.Join(err, failed)
	}()
	if original.size < was.SizeBytes {
		return Result{}, fmt.Errorf("volume %s has %d bytes on its target, but %d on this machine: disconnect it and repeat", id, was.SizeBytes, original.size)
	}
	result.SizeBytes = original.size
	if copied.size < original.size {
		return Result{}, fmt.Errorf("the copy %s has %d bytes on this machine, the original %d: disconnect it and repeat", result.id(), copied.size, original.size)
	}
	state := &moving{from: original, to: copied, marked: before != finished}
	clusters := &allocations{m: m, original: id, copied: result.id()}
	switch {
	case base == "":
	case prepared:
		state.only = clusters.changedSince(ctx, base, original, copied)
	default:
		m.warn("everything is copied again, because the copy was not locked since --prepare", "volume", result.id())
	}
	if base != "" { // after the first write, the copy no longer equals base
		if err = copied.setFirst(markOf(id.String(), "")); err != nil {
			return Result{}, fmt.Errorf("copy %s to %s: %w", id, result.id(), err)
		}
	}
	if state.only == nil {
		original.allocated = clusters.ofOriginal(ctx, original.size)
	}
	switch before {
	case finished:
		copied.allocated = clusters.ofCopy(ctx, copied.size)
		result.SHA256, err = m.verify(ctx, state, clusters)
		if errors.Is(err, ErrDiffers) {
			err = fmt.Errorf("%w: the copy may contain newer data. To copy the original again, delete the copy first: %w", ErrCopied, err)
		}
	default:
		result.SHA256, err = m.copyAndVerify(ctx, state, clusters)
	}
	if err == nil {
		err = clusters.unchanged(ctx, original.size)
	}
	if err != nil {
		return Result{}, fmt.Errorf("copy %s to %s: %w", id, result.id(), err)
	}
	complete = true // set before end, which may complete the copy even if it fails
	if before != finished {
		if err = end(copied, original); err != nil {
			return Result{}, fmt.Errorf("copy %s to %s: %w", id, result.id(), err)
		}
	}
	result.ReadBytes = original.read.Load()
	result.WrittenBytes, result.Empty = state.written.Load(), !state.data
	if err = closeCopy(); err == nil {
		err = m.unpublish(result.id(), node)
	}
	if err != nil {
		return Result{}, fmt.Errorf("the copy %s is complete, but still published to %s: %w", result.id(), node, err)
	}
	m.discardOrWarn(ctx, id)
	return result, nil
}

// createCopy creates the copy of a volume, or finds the copy that an earlier call created.
func (m Mover) createCopy(ctx context.Context, id request.VolumeID, size int64, parameters map[string]string) (*csi.Volume, error) {
	created, err := m.Controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: request.MoveCopyName(id.UUID), Parameters: parameters, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csi.VolumeCapability{capability(m.Filesystem)},
	})
	if err == nil && created.GetVolume().GetVolumeId() == id.String() {
		err = fmt.Errorf("%w: volume %s would be copied to itself", request.ErrInvalid, id)
	}
	return created.GetVolume(), err
}

// onlyRead makes publish treat a volume as a volume with a file system. This is safe for any
// contents, because the move only reads the volume.
const onlyRead = true

// capability returns the capability that the move requests. A move does not mount volumes, but
// requests a mounted volume if the volume has a file system, because the controller refuses raw
// block volumes on targets that may load lvstores or RAIDs from them.
func capability(filesystem bool) *csi.VolumeCapability {
	c := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	if filesystem {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}
	}
	return c
}

func (m Mover) copyAndVerify(ctx context.Context, state *moving, clusters *allocations) (sum string, err error) {
	state.to.allocated = clusters.ofCopy(ctx, state.to.size)
	if err := m.report(state, "copy", func() error { return state.differing(ctx) }); err != nil {
		return "", err
	}
	// Each write may have allocated a cluster with stale bytes. A write of zeros over stale bytes
	// may also allocate such a cluster if it extends into the next cluster, so repeat until nothing
	// more is written.
	for written := int64(-1); written != state.written.Load(); {
		written = state.written.Load()
		state.to.allocated = clusters.ofCopy(ctx, state.to.size)
		if err := state.clearStale(ctx); err != nil {
			return "", err
		}
	}
	return m.verify(ctx, state, clusters)
}

func (m Mover) verify(ctx context.Context, state *moving, clusters *allocations) (sum string, err error) {
	state.done.Store(0)
	if m.VerifyAll || !clusters.proven() {
		state.from.allocated, state.to.allocated, state.only = nil, nil, nil
	}
	err = m.report(state, "verify", func() error { sum, err = state.verify(ctx); return err })
	if err == nil && state.only != nil && !state.data { // only the remaining chunks show whether the volume is empty
		state.only = nil
		return m.verify(ctx, state, clusters)
	}
	return sum, err
}

// report runs a phase, and calls Progress every second.
func (m Mover) report(state *moving, phase string, run func() error) error {
	if m.Progress == nil {
		return run()
	}
	ended, reported := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(reported)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				m.Progress(Progress{phase, state.done.Load(), state.from.size})
			}
		}
	}()
	err := run()
	close(ended)
	<-reported
	if err == nil {
		m.Progress(Progress{phase, state.from.size, state.from.size})
	}
	return err
}
