package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Config describes a target.
type Config struct {
	export.Config
	// Stores are the lvstores that the driver may use; all of the target's when empty.
	Stores []string
	// Space bounds what is promised to volumes.
	Space Space
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// A Target is one SPDK target. All services for a target, whatever their credentials, share one Target.
type Target struct {
	Config
	exports *export.Target
}

// NewTarget returns a target with a configuration.
func NewTarget(c Config) *Target {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Target{Config: c, exports: export.NewTarget(c.Config)}
}

// A Service manages the volumes of one target with the credentials of its client. Safe for concurrent use. It records which
// lvstores it has seen with these credentials, to notice when one is missing; so keep it as long as the client.
type Service struct {
	*Target
	rpc     *spdkrpc.Client
	exports *export.Service
	seen    *memory
}

// Service returns a service that calls the target through client.
func (t *Target) Service(client *spdkrpc.Client) *Service {
	return &Service{Target: t, rpc: client, exports: t.exports.Service(client), seen: newMemory()}
}

// Remember makes the service continue with what a former one has seen of the target. Call it before the service is used.
func (s *Service) Remember(former *Service) { s.seen = former.seen }

// A Volume describes a logical volume, which is a volume in CSI's sense, or a snapshot.
type Volume struct {
	UUID      string
	Store     string // lvstore
	Name      string // within the lvstore
	SizeBytes int64
	Thin      bool
	Snapshot  bool
	Base      string   // name of the parent within the lvstore, empty if it has none
	Clones    []string // names of the clones within the lvstore; only snapshots have any
	// Allocated is the number of clusters of the volume itself, without those of its parents. Nil if the release does not
	// count them.
	Allocated *uint64
	// Limits bound its I/O; 0 for no limit.
	Limits spdkrpc.BdevRateLimits
}

func (v Volume) String() string { return v.Store + "/" + v.Name + " (" + v.UUID + ")" }

// A Store describes an lvstore.
type Store struct {
	UUID         string
	Name         string
	Base         string // the bdev that it is on
	ClusterBytes int64
	TotalBytes   int64
	FreeBytes    int64
}

// Stores lists the lvstores that the driver may use. When it returns, all of their volumes can be looked up. It fails with
// ErrStoreMissing if an lvstore is missing that is configured, or that was loaded before.
func (s *Service) Stores(ctx context.Context) ([]Store, error) {
	all, err := s.rpc.BdevLvolGetLvstores(ctx, spdkrpc.BdevLvolGetLvstoresParams{})
	if err != nil {
		return nil, fmt.Errorf("target %s: list lvstores: %w", s.Name, err)
	}
	var stores []Store
	for _, l := range all {
		if s.permits(l.Name) {
			c := int64(l.ClusterSize)
			stores = append(stores, Store{UUID: l.UUID, Name: l.Name, Base: l.BaseBdev, ClusterBytes: c, TotalBytes: int64(l.TotalDataClusters) * c, FreeBytes: int64(l.FreeClusters) * c})
		}
	}
	if err := s.checkStores(stores); err != nil {
		return nil, err
	}
	return stores, s.waitForExamine(ctx)
}

func (s *Service) store(ctx context.Context, name string) (Store, error) {
	stores, err := s.Stores(ctx)
	if err != nil {
		return Store{}, err
	}
	return s.storeOf(stores, name)
}

func (s *Service) storeOf(stores []Store, name string) (Store, error) {
	for _, st := range stores {
		if st.Name == name {
			return st, nil
		}
	}
	return Store{}, fmt.Errorf("target %s: %w: %q", s.Name, ErrStoreMissing, name)
}

func (t *Target) permits(store string) bool {
	return len(t.Config.Stores) == 0 || slices.Contains(t.Config.Stores, store)
}

// Get returns the volume or snapshot with a UUID. ErrNotFound means that it does not exist, not only that the target cannot
// show it now.
func (s *Service) Get(ctx context.Context, id string) (Volume, error) {
	v, err := s.lookUp(ctx, id)
	if errors.Is(err, ErrNotFound) {
		v, err = s.confirmAbsent(ctx, id)
	}
	if err != nil {
		return v, err
	}
	if v.UUID != id {
		return Volume{}, fmt.Errorf("target %s: %w: bdev %q is the volume %s", s.Name, ErrWrongKind, id, v.UUID)
	}
	return v, nil
}

// GetVolume is like Get, but fails with ErrWrongKind for a snapshot.
func (s *Service) GetVolume(ctx context.Context, id string) (Volume, error) {
	v, err := s.Get(ctx, id)
	if err == nil && v.Snapshot {
		return v, fmt.Errorf("target %s: %w: %s is a snapshot, not a volume", s.Name, ErrWrongKind, v)
	}
	return v, err
}

// Find returns the volume with a requested name, from any of the lvstores. The caller passes all lvstores that the driver
// may use, so ErrNotFound means that the volume does not exist.
func (s *Service) Find(ctx context.Context, stores []Store, name string) (Volume, error) {
	lists := make([][]Volume, len(stores))
	g, ctx := errgroup.WithContext(ctx)
	for i, st := range stores {
		g.Go(func() (err error) {
			lists[i], err = s.findIn(ctx, st, LvolName(name))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Volume{}, err
	}
	found := slices.Concat(lists...)
	switch {
	case len(found) == 0:
		return Volume{}, fmt.Errorf("target %s: volume %q: %w", s.Name, name, ErrNotFound)
	case len(found) > 1:
		return Volume{}, s.duplicateError(name, found)
	}
	return found[0], nil
}

// lookUp returns the lvol with a UUID, or with an alias LVSTORE/LVOL. ErrNotFound means only that it has no bdev; it may
// exist.
func (s *Service) lookUp(ctx context.Context, bdev string) (Volume, error) {
	infos, err := s.rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &bdev})
	switch {
	case errors.Is(err, spdkrpc.NoSuchDevice):
		return Volume{}, fmt.Errorf("target %s: volume %q: %w", s.Name, bdev, ErrNotFound)
	case err != nil:
		return Volume{}, fmt.Errorf("target %s: look up volume %q: %w", s.Name, bdev, err)
	case len(infos) != 1:
		return Volume{}, fmt.Errorf("target %s: look up volume %q: the target answered with %d bdevs instead of one", s.Name, bdev, len(infos))
	}
	return s.volume(infos[0])
}

func (s *Service) volume(b spdkrpc.BdevInfo) (Volume, error) {
	l := b.DriverSpecific.Lvol
	if l == nil || len(b.Aliases) == 0 {
		return Volume{}, fmt.Errorf("target %s: %w: bdev %s is not a logical volume", s.Name, ErrWrongKind, b.Name)
	}
	store, name, ok := strings.Cut(b.Aliases[0], "/")
	if !ok {
		return Volume{}, fmt.Errorf("target %s: %w: bdev %s has the alias %q, which is not LVSTORE/LVOL", s.Name, ErrWrongKind, b.Name, b.Aliases[0])
	}
	v := Volume{
		UUID: b.UUID, Store: store, Name: name, SizeBytes: int64(b.NumBlocks) * int64(b.BlockSize),
		Thin: value(l.ThinProvision), Snapshot: isSnapshot(name, value(l.Snapshot)), Base: value(l.BaseSnapshot), Clones: l.Clones, Allocated: l.NumAllocatedClusters,
		Limits: b.AssignedRateLimits,
	}
	if !s.permits(store) {
		return Volume{}, fmt.Errorf("target %s: %w: %s is in lvstore %q: if the driver may use this lvstore, add it to lvstores in config.json", s.Name, ErrStoreForbidden, v, store)
	}
	return v, nil
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
