package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// A Witness is the record of a volume's in-sync replicas. All nodes share this record.
type Witness interface {
	// Read returns the current witness.
	Read(ctx context.Context) (replica.Witness, error)
	// Change calls change with the current witness, stores the result, and returns the stored
	// witness. If the witness has changed in the meantime, Change starts over. If Change fails, the
	// result may still have been stored.
	Change(ctx context.Context, change func(replica.Witness) (replica.Witness, error)) (replica.Witness, error)
}

// A Volume describes a volume that is published to this node.
type Volume struct {
	ID   string
	Size int64 // usable size in bytes; a multiple of 4096
	// Writer is the publication to this node.
	Writer replica.Writer
	// UUIDs contains the UUIDs of the replicas' namespaces, by ID.
	UUIDs [replica.MaxReplicas]string
}

// Options are the options of [New].
type Options struct {
	Witness Witness
	// Find returns the path of the block device with a namespace's UUID. It returns ErrUnreachable
	// if there is no such device, or if no server responds, because I/O to the device would then
	// wait.
	Find func(ctx context.Context, uuid string) (device string, err error)
	// Release ends the connections to a replica that the witness has dropped, so that I/O waiting
	// for the replica's server fails. The mirror holds the failed writes.
	Release func(ctx context.Context, uuid string) error
	// Log is the logger. Nil means slog.Default().
	Log *slog.Logger
}

// A Mirror is the mirror of one publication of a volume. It is safe for concurrent use.
type Mirror struct {
	volume Volume
	Options
	kernel kernel
	disks  disks

	mu sync.Mutex
	// stopped means that this process removed the mirror while no write was in flight. The stop may
	// not be recorded in the witness yet.
	stopped bool
}

// A Status describes a running mirror.
type Status struct {
	// Device is the path of the volume's block device.
	Device string
	// Members contains the in-sync replicas in the mirror, Rebuilding contains the replica that is
	// being rebuilt, and Missing contains the replica that has no leg.
	Members, Rebuilding, Missing replica.Set
	// Failed contains the replicas with failed I/O. After such a failure, writes wait until Retry
	// or Drop is called.
	Failed replica.Set
	// LogFailed means that the log could not be written. After such a failure, writes wait, or fail
	// if a replica is missing.
	LogFailed bool
	// Regions is the number of regions in the volume, and Synced is the number of regions that are
	// the same on all legs.
	Synced, Regions uint64
}

// idPattern matches volume ids that can be part of a device's name.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,79}$`)

// New returns the mirror of a volume on this node. It changes no device.
func New(v Volume, o Options) (*Mirror, error) {
	switch {
	case !idPattern.MatchString(v.ID):
		return nil, fmt.Errorf("%w: the id %q cannot be part of a device's name", ErrInvalid, v.ID)
	case v.Size < RegionBytes || v.Size%superblockBytes != 0 || (v.Size+RegionBytes-1)/RegionBytes > maxRegions:
		return nil, fmt.Errorf("%w: the size is %d bytes, but must be a multiple of %d from %d to %d", ErrInvalid, v.Size, superblockBytes, RegionBytes, int64(maxRegions)*RegionBytes)
	case v.Writer.Node == "" || v.Writer.Generation == 0:
		return nil, fmt.Errorf("%w: the volume has no publication", ErrInvalid)
	case o.Witness == nil || o.Find == nil || o.Release == nil:
		return nil, fmt.Errorf("%w: options are missing", ErrInvalid)
	}
	m := &Mirror{volume: v, Options: o, kernel: newDMKernel("/dev/mapper"), disks: namespaces{}}
	if m.Log == nil {
		m.Log = slog.Default()
	}
	m.Log = m.Log.With("volume", v.ID, "generation", v.Writer.Generation)
	return m, nil
}

// Module is the name of the kernel module for mirrors.
const Module = "dm_mirror"

// CheckKernel fails with [ErrUnsupported] if this node's kernel does not support mirrors. It makes
// the kernel load the modules if possible.
func CheckKernel() error { return newDMKernel("/dev/mapper").check() }

// The names of the volume's devices: the mirror, its log, and the device that takes the place of a
// missing replica.
func (m *Mirror) name() string     { return "spdkmirror-" + m.volume.ID }
func (m *Mirror) logName() string  { return "spdkmirrorlog-" + m.volume.ID }
func (m *Mirror) lostName() string { return "spdkmirrorlost-" + m.volume.ID }

// uuidPrefix is the prefix of the UUIDs of all devices that this package creates. No udev rules on
// hosts match this prefix.
const uuidPrefix = "SPDKGATE-MIRROR-"

// uuid returns the UUID of the mirror's device, which contains the publication's generation.
func (m *Mirror) uuid() string {
	return fmt.Sprintf("%s%d-%s", uuidPrefix, m.volume.Writer.Generation, m.volume.ID)
}

func (m *Mirror) sectors() uint64 { return uint64(m.volume.Size) / sectorBytes }

// A seen describes a connected replica.
type seen struct {
	number     string
	superblock superblock
}

// look reads the superblocks of the replicas in set. If a replica is Foreign or Unreadable, its
// error contains the reason.
func (m *Mirror) look(ctx context.Context, set replica.Set) (view replica.View, there [replica.MaxReplicas]seen, causes [replica.MaxReplicas]error) {
	for _, id := range set.IDs() {
		view[id].State, there[id], causes[id] = m.lookAt(ctx, id)
		view[id].Superblock = there[id].superblock.Superblock
	}
	return view, there, causes
}

// lookAt reads the superblock of a replica. A server that has just stopped responding still counts
// as connected until the read fails.
func (m *Mirror) lookAt(ctx context.Context, id replica.ID) (replica.State, seen, error) {
	path, err := m.pathOf(ctx, id)
	if err != nil && !errors.Is(err, ErrUnreachable) {
		return replica.Unreadable, seen{}, err
	}
	var state replica.State
	var there seen
	if err == nil {
		state, there, err = m.readReplica(path, id)
	}
	if errors.Is(err, ErrUnreachable) {
		return replica.Unreachable, seen{}, nil
	}
	return state, there, err
}

func (m *Mirror) readReplica(path string, id replica.ID) (replica.State, seen, error) {
	d, err := m.disks.open(path)
	if err != nil {
		return replica.Unreadable, seen{}, fmt.Errorf("replica %d: %w", id, err)
	}
	defer d.Close()
	number, err := d.number()
	if err != nil {
		return replica.Unreadable, seen{}, err
	}
	size, err := d.size()
	if err == nil && size < HeadBytes+m.volume.Size {
		err = fmt.Errorf("the device has %d bytes, but the volume needs %d", size, HeadBytes+m.volume.Size)
	}
	if err != nil {
		return replica.Unreadable, seen{}, err
	}
	state, s, err := readHead(d)
	if state == replica.Ours {
		state, err = m.judge(id, s)
	}
	if state != replica.Ours {
		s = superblock{}
	}
	return state, seen{number, s}, err
}

// judge determines whether a superblock belongs to this replica of this volume.
func (m *Mirror) judge(id replica.ID, s superblock) (replica.State, error) {
	switch {
	case s.Volume != m.volume.ID:
		return replica.Foreign, fmt.Errorf("the device is a replica of another volume, %q", s.Volume)
	case s.ID != id || s.UUID != m.volume.UUIDs[id]:
		return replica.Foreign, fmt.Errorf("the device is a copy of replica %d with the UUID %s", s.ID, s.UUID)
	case s.Size != m.volume.Size || s.Region != RegionBytes:
		return replica.Unreadable, fmt.Errorf("its superblock records a volume of %d bytes with regions of %d, not %d and %d", s.Size, s.Region, m.volume.Size, int64(RegionBytes))
	}
	return replica.Ours, nil
}

func (m *Mirror) pathOf(ctx context.Context, id replica.ID) (string, error) {
	if m.volume.UUIDs[id] == "" {
		return "", fmt.Errorf("replica %d: %w: its UUID is unknown", id, ErrUnreachable)
	}
	path, err := m.Find(ctx, m.volume.UUIDs[id])
	if err != nil {
		return "", fmt.Errorf("replica %d: %w", id, err)
	}
	return path, nil
}

// openReplica opens a replica.
func (m *Mirror) openReplica(ctx context.Context, id replica.ID) (disk, error) {
	path, err := m.pathOf(ctx, id)
	if err != nil {
		return nil, err
	}
	d, err := m.disks.open(path)
	if err != nil {
		return nil, fmt.Errorf("replica %d: %w", id, err)
	}
	return d, nil
}

// write writes the superblocks of the replicas in set.
func (m *Mirror) write(ctx context.Context, set replica.Set, s replica.Superblock) error {
	for _, id := range set.IDs() {
		if err := m.writeOne(ctx, id, s); err != nil {
			return fmt.Errorf("write the superblock of replica %d: %w", id, err)
		}
	}
	return nil
}

// writeOne writes a superblock to a device that is blank or already contains this replica.
func (m *Mirror) writeOne(ctx context.Context, id replica.ID, s replica.Superblock) error {
	d, err := m.openReplica(ctx, id)
	if err != nil {
		return err
	}
	defer d.Close()
	state, present, err := readHead(d)
	if state == replica.Ours {
		state, err = m.judge(id, present)
	}
	switch {
	case errors.Is(err, ErrUnreachable):
		return err
	case state != replica.Ours && state != replica.Blank:
		return fmt.Errorf("the device has changed: %w", err)
	}
	if present.Epoch > s.Epoch {
		return restored(id)
	}
	together := present.Together
	if s.Rebuild == replica.NoRebuild && s.InSync.Len() == 2 {
		together = s.Epoch
	}
	return writeSuperblock(d, superblock{
		Superblock: s, Volume: m.volume.ID, ID: id, UUID: m.volume.UUIDs[id],
		Size: m.volume.Size, Region: RegionBytes, Sequence: present.Sequence + 1, Together: together,
	})
}

// restored returns the error for a witness that is older than the superblock of a replica.
func restored(id replica.ID) error {
	return &DecisionError{Decision: replica.Decision{Action: replica.Refuse, Reason: replica.WitnessOlder, Because: replica.SetOf(id)}}
}

// notRestored returns the superblock of a replica. It fails if the witness is older than the
// superblock, because such a witness must not be changed.
func (m *Mirror) notRestored(ctx context.Context, w replica.Witness, id replica.ID) (superblock, error) {
	state, there, err := m.lookAt(ctx, id)
	switch {
	case err != nil:
		return superblock{}, fmt.Errorf("replica %d: %w", id, err)
	case state == replica.Unreachable:
		return superblock{}, fmt.Errorf("replica %d: %w", id, ErrUnreachable)
	case there.superblock.Epoch > w.Epoch:
		return superblock{}, restored(id)
	}
	return there.superblock, nil
}

// number looks up the device of a connected replica, and returns the device's number.
func (m *Mirror) number(ctx context.Context, id replica.ID) (string, error) {
	state, there, err := m.lookAt(ctx, id)
	switch {
	case err != nil:
		return "", fmt.Errorf("replica %d: %w", id, err)
	case state == replica.Unreachable:
		return "", fmt.Errorf("replica %d: %w", id, ErrUnreachable)
	case state != replica.Ours:
		return "", fmt.Errorf("replica %d has no superblock", id)
	}
	return there.number, nil
}

// ours reports whether this package created the device.
func (m mapping) ours() bool { return strings.HasPrefix(m.uuid, uuidPrefix) }
