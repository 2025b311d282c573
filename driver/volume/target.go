package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/coalesce"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Config describes a target.
type Config struct {
	export.Config
	// Stores lists the lvstores that the driver may use; empty means all lvstores of the target.
	Stores []string
	// DetachClones permits DeleteSnapshot and DeleteGroup to copy the data of a snapshot into its
	// clones if it has several.
	DetachClones bool
	// UncountedWrites means that the target's cluster counts do not include clusters written by
	// hosts, as on a simulated target.
	UncountedWrites bool
	// Space limits the sizes of volumes.
	Space Space
	// Now returns the current time; nil means time.Now.
	Now func() time.Time
}

// A Target is one SPDK target. All services for a target share one Target, even if their
// credentials differ.
type Target struct {
	Config
	exports *export.Target
}

// NewTarget returns a target with this configuration.
func NewTarget(c Config) *Target {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Target{Config: c, exports: export.NewTarget(c.Config)}
}

// A Service manages one target's volumes with its client's credentials. It is safe for concurrent
// use. It records which lvstores it has seen with these credentials, so that it can detect a
// missing lvstore. Keep the Service for as long as its client.
type Service struct {
	*Target
	rpc     *spdkrpc.Client
	exports *export.Service
	seen    *memory
	reads   coalesce.Group // combines concurrent reads with the same result

	detaching sync.Mutex // held while one volume is decoupled: SPDK loses data if it decouples several volumes concurrently
}

// Service returns a service that calls the target through client.
func (t *Target) Service(client *spdkrpc.Client) *Service {
	return &Service{Target: t, rpc: client, exports: t.exports.Service(client), seen: newMemory()}
}

// Remember copies the record of seen lvstores from an earlier service for the same target. Call
// Remember before the service is used.
func (s *Service) Remember(former *Service) { s.seen = former.seen }

// A Volume describes a logical volume, which is either a CSI volume or a snapshot.
type Volume struct {
	UUID      string
	Store     string // lvstore
	Name      string // name within the lvstore
	SizeBytes int64
	Thin      bool
	Snapshot  bool
	Base      string   // name of the parent within the lvstore; empty if there is none
	Clones    []string // names of the clones within the lvstore; only snapshots have clones
	// Allocated is the number of the volume's own clusters, without the clusters of its parents. It
	// is nil if the release does not count clusters.
	Allocated *uint64
	// Limits are the volume's I/O limits; 0 means no limit.
	Limits spdkrpc.BdevRateLimits
}

func (v Volume) String() string { return v.Store + "/" + v.Name + " (" + v.UUID + ")" }

// A Store describes an lvstore.
type Store struct {
	UUID         string
	Name         string
	Base         string // the bdev that contains the lvstore
	ClusterBytes int64
	TotalBytes   int64
	FreeBytes    int64

	unmapZeroes bool // result of unmapZeroes
}

// Stores lists the lvstores that the driver may use. When it returns, all volumes in these lvstores
// can be looked up. Stores fails with ErrStoreMissing if a configured or previously loaded lvstore
// is missing.
//
// Stores lists the lvstores while it waits for the target to load them, which saves a round of
// queries. An lvstore that is listed for the first time may have appeared after that wait, so
// Stores then waits again.
//
// Stores omits nested lvstores (see nested.go). It fails with ErrNested if a nested lvstore has a
// configured name, or if all lvstores are nested.
func (s *Service) Stores(ctx context.Context) ([]Store, error) {
	ctx = AskOnce(ctx)
	var all []spdkrpc.LvolStore
	var ahead map[string]verdict
	err := atOnce(ctx,
		func(ctx context.Context) (err error) {
			if all, err = s.lvstores(ctx); err != nil {
				return fmt.Errorf("target %s: list lvstores: %w", s.Name, err)
			}
			return nil
		},
		s.waitForExamine,
		func(ctx context.Context) error { ahead = s.askAhead(ctx, ""); return nil })
	if err != nil {
		return nil, err
	}
	var stores []Store
	for _, l := range all {
		if s.permits(l.Name) {
			c := int64(l.ClusterSize)
			stores = append(stores, Store{UUID: l.UUID, Name: l.Name, Base: l.BaseBdev, ClusterBytes: c, TotalBytes: int64(l.TotalDataClusters) * c, FreeBytes: int64(l.FreeClusters) * c})
		}
	}
	if stores, err = s.withoutNested(ctx, stores, ahead); err != nil {
		return nil, err
	}
	known := s.seen.haveAll(stores)
	if err := s.checkStores(stores); err != nil || known {
		return stores, err
	}
	return stores, s.waitForExamine(ctx)
}

// lvstores lists all lvstores of the target.
func (s *Service) lvstores(ctx context.Context) ([]spdkrpc.LvolStore, error) {
	return coalesce.Do(ctx, &s.reads, "lvstores", func(ctx context.Context) ([]spdkrpc.LvolStore, error) {
		return s.rpc.BdevLvolGetLvstores(ctx, spdkrpc.BdevLvolGetLvstoresParams{})
	})
}

// atOnce runs the given functions concurrently. If a function fails, atOnce cancels the context of
// the others. It waits until all functions have returned, and returns the first error.
func atOnce(ctx context.Context, functions ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range functions {
		g.Go(func() error { return f(ctx) })
	}
	return g.Wait()
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

// Get returns the volume or snapshot with this UUID. It returns ErrNotFound only if the object
// definitely does not exist. Otherwise, it reports a missing bdev as another error.
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

// GetVolume is like Get, but fails with ErrWrongKind for a snapshot, and for a replica of a
// replicated volume.
func (s *Service) GetVolume(ctx context.Context, id string) (Volume, error) {
	v, err := s.Get(ctx, id)
	if err == nil {
		err = s.notReplica(v)
	}
	if err == nil && v.Snapshot {
		return v, fmt.Errorf("target %s: %w: %s is a snapshot, not a volume", s.Name, ErrWrongKind, v)
	}
	return v, err
}

// Find returns the volume with the name of spec, from any of the lvstores. The caller must pass all
// lvstores that the driver may use; ErrNotFound then means that the volume does not exist.
func (s *Service) Find(ctx context.Context, stores []Store, spec Spec) (Volume, error) {
	mayBeRenamed, err := s.mayBeRenamed(ctx, spec.Class.Thick)
	if err != nil {
		return Volume{}, err
	}
	lists := make([][]Volume, len(stores))
	g, ctx := errgroup.WithContext(ctx)
	for i, st := range stores {
		g.Go(func() (err error) {
			lists[i], err = s.findIn(ctx, st, spec.lvolName(), mayBeRenamed)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Volume{}, err
	}
	found := slices.Concat(lists...)
	switch {
	case len(found) == 0:
		return Volume{}, fmt.Errorf("target %s: volume %q: %w", s.Name, spec.Name, ErrNotFound)
	case len(found) > 1:
		return Volume{}, s.duplicateError(spec.Name, found)
	}
	return found[0], nil
}

// Survey returns the lvstores that the driver may use, and the volume with the name of spec. The
// volume is nil if it does not exist or spec has no name.
func (s *Service) Survey(ctx context.Context, spec Spec) (stores []Store, existing *Volume, err error) {
	ctx = AskOnce(ctx)
	if spec.Name == "" {
		stores, err = s.Stores(ctx)
		return stores, nil, err
	}
	err = atOnce(ctx,
		func(ctx context.Context) (err error) {
			stores, err = s.Stores(ctx)
			return err
		},
		func(ctx context.Context) error {
			_, err := s.mayBeRenamed(ctx, spec.Class.Thick) // this reads the release, which the client then caches
			return err
		})
	if err != nil {
		return nil, nil, err
	}
	v, err := s.Find(ctx, stores, spec)
	if err == nil {
		existing = &v
	}
	return stores, existing, ignore(err, ErrNotFound)
}

// lookUp returns the lvol with a UUID, or with an alias LVSTORE/LVOL. ErrNotFound means only that
// the lvol has no bdev; the lvol may still exist. It fails with ErrNested if the lvol is in a
// nested lvstore.
func (s *Service) lookUp(ctx context.Context, bdev string) (Volume, error) {
	ctx = AskOnce(ctx)
	store, _, ok := strings.Cut(bdev, "/")
	if !ok {
		store = "" // bdev is a UUID
	}
	var asking sync.WaitGroup
	var ahead map[string]verdict
	asking.Go(func() { ahead = s.askAhead(ctx, store) })
	infos, err := s.rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &bdev})
	asking.Wait()
	switch {
	case errors.Is(err, spdkrpc.NoSuchDevice):
		return Volume{}, fmt.Errorf("target %s: volume %q: %w", s.Name, bdev, ErrNotFound)
	case err != nil:
		return Volume{}, fmt.Errorf("target %s: look up volume %q: %w", s.Name, bdev, err)
	case len(infos) != 1:
		return Volume{}, fmt.Errorf("target %s: look up volume %q: the target returned %d bdevs instead of one", s.Name, bdev, len(infos))
	}
	v, err := s.volume(infos[0])
	if err != nil {
		return v, err
	}
	return v, s.checkPlace(ctx, v, value(infos[0].DriverSpecific.Lvol.BaseBdev), ahead)
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
