package heal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/mirror"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/witness"
)

// A Replica describes the location of a replica.
type Replica struct {
	ID     replica.ID     `json:"number"`
	Server string         `json:"server"`
	UUID   string         `json:"uuid"`
	Export connect.Export `json:"export"`
}

// A Volume describes a replicated volume as it was published to this node. It can be stored as
// JSON.
type Volume struct {
	// Name is the name of the volume's witness, and UID is the UID of that Kubernetes object.
	Name string `json:"name"`
	UID  string `json:"uid"`
	// SizeBytes is the usable size of the volume.
	SizeBytes  int64     `json:"sizeBytes"`
	Node       string    `json:"node"`
	Generation uint64    `json:"generation"`
	Replicas   []Replica `json:"replicas"`
}

// A Connector connects to replicas. [connect.Watcher] implements it.
type Connector interface {
	Paths(ctx context.Context, e connect.Export) (connect.Paths, error)
	Reconnect(ctx context.Context, e connect.Export) error
	Disconnect(ctx context.Context, e connect.Export) error
	Release(ctx context.Context, e connect.Export) error
}

// Witnesses stores witnesses. [witness.Store] implements it.
type Witnesses interface {
	Get(ctx context.Context, name string) (witness.Record, error)
	Change(ctx context.Context, name, uid string, transition func(replica.Witness) (replica.Witness, error)) (witness.Record, error)
}

// A Mirror is the mirror of a volume. [mirror.Mirror] implements it.
type Mirror interface {
	Start(ctx context.Context) (replica.Decision, error)
	Stop(ctx context.Context) error
	Status(ctx context.Context) (mirror.Status, error)
	Local() (mirror.Local, error)
	Drop(ctx context.Context, id replica.ID) error
	Retry(ctx context.Context) error
	Add(ctx context.Context, id replica.ID) error
	Complete(ctx context.Context) (bool, error)
	Abandon(ctx context.Context) error
}

// Options are the options of [New]. Connector and Witnesses are required.
type Options struct {
	Connector Connector
	Witnesses Witnesses
	Log       *slog.Logger
	// Grace is how long a server may be unresponsive before its replica is dropped from the mirror;
	// the default is 5 s.
	Grace time.Duration
	// Exclusive returns an error if another process may still change the mirrors of this node; the
	// healer then changes nothing. Nil means that there is no other process.
	Exclusive func() error
	// NewMirror creates a mirror; nil means mirror.New.
	NewMirror func(mirror.Volume, mirror.Options) (Mirror, error)
	// Now returns the current time; nil means time.Now.
	Now func() time.Time
}

// A Healer runs the mirrors of a node. It is safe for concurrent use.
type Healer struct {
	Options

	mu      sync.Mutex
	volumes map[string]*volume // keyed by name
}

const (
	defaultGrace = 5 * time.Second
	// interval is the time between two rounds.
	interval = time.Second
	// stepTimeout limits the duration of a step, which may wait for an unavailable API server.
	stepTimeout = 30 * time.Second
	// connectTimeout limits an attempt to connect to one replica.
	connectTimeout = 15 * time.Second
	// retryAgain is how long after a retry of the writes another failure counts as the same
	// failure.
	retryAgain = 30 * time.Second
	// completeInterval is the time between two checks of whether a rebuild is complete.
	completeInterval = 5 * time.Second
	// longestPause limits the time between attempts after failures.
	longestPause = 30 * time.Second
)

// New returns a healer without volumes.
func New(o Options) *Healer {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.NewMirror == nil {
		o.NewMirror = func(v mirror.Volume, o mirror.Options) (Mirror, error) { return mirror.New(v, o) }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Exclusive == nil {
		o.Exclusive = func() error { return nil }
	}
	return &Healer{Options: o, volumes: map[string]*volume{}}
}

// volumeWitness is the witness of one volume.
type volumeWitness struct {
	Witnesses
	name, uid string
}

func (w volumeWitness) Read(ctx context.Context) (replica.Witness, error) {
	r, err := w.Get(ctx, w.name)
	if err == nil && r.UID != w.uid {
		err = fmt.Errorf("%w: its UID is %s, not %s", witness.ErrReplaced, r.UID, w.uid)
	}
	return r.Witness, err
}

func (w volumeWitness) Change(ctx context.Context, change func(replica.Witness) (replica.Witness, error)) (replica.Witness, error) {
	r, err := w.Witnesses.Change(ctx, w.name, w.uid, change)
	return r.Witness, err
}

// A volume is the healer's state for one replicated volume on this node.
type volume struct {
	Volume
	*Healer
	mirror Mirror
	// busy holds a token while the mirror is in use.
	busy chan struct{}

	// Only the holder of the token may use the fields below, except state.
	staged bool
	// unfinished means that a step has failed, and may have been partly executed.
	unfinished bool
	over       bool // the publication is over, and the mirror was abandoned
	lostSince  map[replica.ID]time.Time
	retriedAt  time.Time
	pause      time.Duration
	notBefore  time.Time

	state State // guarded by Healer.mu
}

// of returns the state of a volume, which it creates for a new volume. It returns an error if
// another publication of the volume is staged on this node.
func (h *Healer) of(v Volume) (*volume, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.volumes[v.Name]; known != nil {
		if known.Generation != v.Generation || known.UID != v.UID {
			return nil, fmt.Errorf("%w: publication %d of the volume is still staged on this node, but publication %d is requested: unstage the volume first", mirror.ErrBusy, known.Generation, v.Generation)
		}
		return known, nil
	}
	made := &volume{Volume: v, Healer: h, busy: make(chan struct{}, 1), lostSince: map[replica.ID]time.Time{}}
	described := mirror.Volume{ID: v.Name, Size: v.SizeBytes, Writer: replica.Writer{Node: v.Node, Generation: v.Generation}}
	exports := map[string]connect.Export{}
	for _, r := range v.Replicas {
		if r.ID >= replica.MaxReplicas || described.UUIDs[r.ID] != "" || r.UUID == "" || r.UUID != r.Export.NSUUID {
			return nil, fmt.Errorf("%w: replica %d has an impossible number, or its export has another UUID", mirror.ErrInvalid, r.ID)
		}
		described.UUIDs[r.ID] = r.UUID
		exports[r.UUID] = r.Export
	}
	var err error
	made.mirror, err = h.NewMirror(described, mirror.Options{
		Witness: volumeWitness{h.Witnesses, v.Name, v.UID},
		Find:    func(ctx context.Context, uuid string) (string, error) { return h.find(ctx, exports[uuid]) },
		Release: func(ctx context.Context, uuid string) error { return h.Connector.Release(ctx, exports[uuid]) },
		Log:     h.Log,
	})
	if err != nil {
		return nil, err
	}
	h.volumes[v.Name] = made
	return made, nil
}

// errUnknown means that the kernel's view of a connection could not be read.
var errUnknown = errors.New("the state of the connections is unknown")

// find returns the device of a replica. It fails unless the replica's server responds.
func (h *Healer) find(ctx context.Context, e connect.Export) (string, error) {
	p, err := h.Connector.Paths(ctx, e)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w: %w", mirror.ErrUnreachable, errUnknown, err)
	case p.NoDevice != nil:
		return "", fmt.Errorf("%w: %w", mirror.ErrUnreachable, p.NoDevice)
	case p.Live() == 0:
		return "", mirror.ErrUnreachable
	}
	return p.Device.Path, nil
}

// take waits until no other call is using the volume's mirror, and then reserves the mirror until
// release is called.
func (v *volume) take(ctx context.Context) (release func(), err error) {
	select {
	case v.busy <- struct{}{}:
		return func() { <-v.busy }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: another operation on the volume has not ended; it may be waiting for a replica: %w", mirror.ErrWait, context.Cause(ctx))
	}
}

// exclusive fails if another process may still change the mirrors of this node.
func (h *Healer) exclusive() error {
	if err := h.Exclusive(); err != nil {
		return fmt.Errorf("%w: %w", mirror.ErrWait, err)
	}
	return nil
}

// Stage connects to the replicas, starts the mirror, and returns the mirror's device. Stage can be
// repeated. If Stage fails, Unstage undoes the steps that Stage has done.
func (h *Healer) Stage(ctx context.Context, described Volume) (device string, err error) {
	if err := h.exclusive(); err != nil {
		return "", err
	}
	v, err := h.of(described)
	if err != nil {
		return "", err
	}
	release, err := v.take(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	connected := v.connectAll(ctx)
	if _, err := v.mirror.Start(ctx); err != nil {
		return "", errors.Join(err, connected)
	}
	local, err := v.mirror.Local()
	if err != nil {
		return "", err
	}
	v.staged = true
	return local.Device, nil
}

// connectAll connects to all reachable replicas. The error lists the unreachable replicas.
func (v *volume) connectAll(ctx context.Context) error {
	failed := make([]error, len(v.Replicas))
	var connecting sync.WaitGroup
	for i, r := range v.Replicas {
		connecting.Go(func() {
			if _, err := v.find(ctx, r.Export); err == nil {
				return
			}
			if err := v.connect(ctx, r); err != nil {
				failed[i] = fmt.Errorf("replica %d on server %s: %w", r.ID, r.Server, err)
			}
		})
	}
	connecting.Wait()
	return errors.Join(failed...)
}

// connect connects to a replica and waits for its device.
func (v *volume) connect(ctx context.Context, r Replica) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := v.Connector.Reconnect(ctx, r.Export); err != nil {
		return err
	}
	for { // repeat: the result of Paths may be a second old
		_, err := v.find(ctx, r.Export)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Unstage stops the mirror, records that it was stopped cleanly, and disconnects the replicas.
// Unstage can be repeated, even by another process. The device must not be in use.
func (h *Healer) Unstage(ctx context.Context, described Volume) error {
	if err := h.exclusive(); err != nil {
		return err
	}
	v, err := h.of(described)
	if err != nil {
		return err
	}
	release, err := v.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	v.staged = false
	var all replica.Set // no one uses the device any more, so only a rebuild can wait for a server
	for _, r := range v.Replicas {
		all |= replica.SetOf(r.ID)
	}
	err = v.releasing(ctx, all, func() error { return v.mirror.Stop(ctx) })
	if err != nil && !publicationIsOver(err) {
		return err
	}
	for _, r := range v.Replicas {
		if err := h.Connector.Disconnect(ctx, r.Export); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.volumes, v.Name)
	return nil
}

// publicationIsOver reports whether an error means that the volume was published again, unpublished
// or deleted.
func publicationIsOver(err error) bool {
	var decision *mirror.DecisionError
	return errors.Is(err, replica.ErrFenced) || errors.Is(err, witness.ErrNotFound) || errors.Is(err, witness.ErrReplaced) ||
		errors.As(err, &decision) && decision.Decision.Reason == replica.Fenced
}

// Watch heals a volume that an earlier process has staged.
func (h *Healer) Watch(described Volume) error {
	v, err := h.of(described)
	if err != nil {
		return err
	}
	release, err := v.take(context.Background())
	if err != nil {
		return err
	}
	defer release()
	if !v.staged {
		v.staged, v.unfinished = true, true
	}
	return nil
}
