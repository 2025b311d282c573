package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/coalesce"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Unless the option bdev_auto_examine is off, SPDK examines every new bdev, including logical
// volumes. It therefore also loads an lvstore that a host has written to a volume, called a nested
// lvstore. The volumes in a nested lvstore belong to that host, regardless of their names and
// UUIDs. This file determines the devices below an lvstore. The driver ignores nested lvstores and
// the volumes in them.
//
// A nested lvstore can have the name, or even the UUID, of an lvstore that is not loaded. Facts
// about the base bdev of an lvstore are therefore valid only during one call to the driver.

// asked caches the results of queries about base bdevs during one call.
type asked struct {
	mu    sync.Mutex
	bases map[baseKey]*askedBase
}

type baseKey struct {
	target *Target
	bdev   string
}

// An askedBase is the verdict about one bdev. Only one query at a time holds the token, which
// guards the other fields.
type askedBase struct {
	token   chan struct{}
	known   bool
	verdict verdict
}

// A verdict contains the facts about an lvstore's base bdev.
type verdict struct {
	err         error // of kind ErrNested if the lvstore must not be used
	unmapZeroes bool  // result of unmapZeroes
}

type askedKey struct{}

// AskOnce returns a context. Calls with this context query each base bdev of a target's lvstores
// only once. Use the context for only one call to the driver.
func AskOnce(ctx context.Context) context.Context {
	if _, ok := ctx.Value(askedKey{}).(*asked); ok {
		return ctx
	}
	return context.WithValue(ctx, askedKey{}, &asked{bases: map[baseKey]*askedBase{}})
}

func (s *Service) askedBase(ctx context.Context, bdev string) *askedBase {
	all := ctx.Value(askedKey{}).(*asked)
	all.mu.Lock()
	defer all.mu.Unlock()
	key := baseKey{s.Target, bdev}
	if all.bases[key] == nil {
		all.bases[key] = &askedBase{token: make(chan struct{}, 1)}
	}
	return all.bases[key]
}

// checkBase fails with ErrNested if the base bdev of an lvstore is or may be a logical volume, or
// contains or may contain one at any depth. ctx comes from AskOnce.
func (s *Service) checkBase(ctx context.Context, bdev string) error {
	return s.judgeBase(ctx, bdev).err
}

// judgeBase is like checkBase, but returns all facts about the bdev.
func (s *Service) judgeBase(ctx context.Context, bdev string) verdict {
	b := s.askedBase(ctx, bdev)
	select {
	case b.token <- struct{}{}:
		defer func() { <-b.token }()
	case <-ctx.Done():
		return verdict{err: context.Cause(ctx)}
	}
	if b.known {
		return b.verdict
	}
	v := s.walkBases(ctx, bdev)
	if v.err == nil || errors.Is(v.err, ErrNested) {
		b.known, b.verdict = true, v
	}
	return v
}

// mostAskedAhead is the maximum number of lvstores for which base bdevs are queried before the
// driver knows which lvstores matter.
const mostAskedAhead = 4

// askAhead queries the base bdevs of the lvstores that have been seen before, which saves a round
// of queries later. If store is not empty, it queries only the base bdevs of lvstores with that
// name. It returns the results of judgeBase, by base bdev.
func (s *Service) askAhead(ctx context.Context, store string) map[string]verdict {
	known := s.seen.known()
	if store != "" {
		known = slices.DeleteFunc(known, func(st Store) bool { return st.Name != store })
	}
	if len(known) > mostAskedAhead {
		return nil
	}
	answers := make([]verdict, len(known))
	var wg sync.WaitGroup
	for i, st := range known {
		wg.Go(func() { answers[i] = s.judgeBase(ctx, st.Base) })
	}
	wg.Wait()
	verdicts := make(map[string]verdict, len(known))
	for i, st := range known {
		verdicts[st.Base] = answers[i]
	}
	return verdicts
}

// maxBases limits how many bdevs below an lvstore are examined. If there are more bdevs, the result
// is unknown.
const maxBases = 256

// walkBases examines a bdev and all bdevs below it, one level after another.
func (s *Service) walkBases(ctx context.Context, bdev string) (v verdict) {
	if bdev == "" {
		return verdict{err: s.checkHidden(ctx)}
	}
	seen := map[string]bool{}
	for level := []string{bdev}; len(level) > 0; {
		infos, below := make([]spdkrpc.BdevInfo, len(level)), make([][]string, len(level))
		g, gctx := errgroup.WithContext(ctx)
		for i, name := range level {
			seen[name] = true
			g.Go(func() (err error) {
				infos[i], below[i], err = s.basesOf(gctx, name)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return verdict{err: err}
		}
		if len(seen) == 1 {
			v.unmapZeroes = unmapZeroes(infos[0])
		}
		level = nil
		for _, name := range slices.Concat(below...) {
			if !seen[name] && !slices.Contains(level, name) {
				level = append(level, name)
			}
		}
		if len(seen)+len(level) > maxBases {
			return verdict{err: fmt.Errorf("target %s: %w: bdev %s is on more than %d other bdevs", s.Name, ErrNested, bdev, maxBases)}
		}
	}
	return v
}

// basesOf returns a bdev and the bdevs below it. There are no bdevs below a device. basesOf fails
// with ErrNested if the bdev is a logical volume or is of an unknown kind.
func (s *Service) basesOf(ctx context.Context, name string) (b spdkrpc.BdevInfo, bases []string, err error) {
	infos, err := coalesce.Do(ctx, &s.reads, "bdev "+name, func(ctx context.Context) ([]spdkrpc.BdevInfo, error) {
		return s.rpc.BdevGetBdevs(ctx, spdkrpc.BdevGetBdevsParams{Name: &name})
	})
	switch {
	case errors.Is(err, spdkrpc.NoSuchDevice):
		return b, nil, fmt.Errorf("target %s: %w: bdev %s, which contains an lvstore, is not visible: it was removed, or the target's proxy hides it: try again", s.Name, ErrStoreMissing, name)
	case err != nil:
		return b, nil, fmt.Errorf("target %s: find out whether bdev %s is on a logical volume: %w", s.Name, name, err)
	case len(infos) != 1:
		return b, nil, fmt.Errorf("target %s: look up bdev %s: the target returned %d bdevs instead of one", s.Name, name, len(infos))
	}
	bases, kind := basesIn(infos[0])
	switch kind {
	case onDevice, onBdevs:
		return infos[0], bases, nil
	case onLvstore:
		return b, nil, fmt.Errorf("target %s: %w: bdev %s is a logical volume, so a host may have written all of its contents: %s", s.Name, ErrNested, nameOf(infos[0]), nestedRemedy)
	}
	return b, nil, fmt.Errorf("target %s: %w: it is unknown which bdevs are below bdev %s (%s), so it may be on a logical volume", s.Name, ErrNested, name, infos[0].ProductName)
}

// nestedRemedy is the remedy for a nested lvstore.
const nestedRemedy = "do not delete it, because the volume's user may need its contents. Turn off the target's option bdev_auto_examine (docs/target.md), and restart the target"

func nameOf(b spdkrpc.BdevInfo) string {
	if len(b.Aliases) > 0 {
		return b.Aliases[0] + " (" + b.Name + ")"
	}
	return b.Name
}

// A basesKind is the format that a bdev's description uses to list the bdevs below it.
type basesKind int

const (
	onUnknown basesKind = iota
	onDevice
	onBdevs
	onLvstore
)

// devices contains the product names of bdevs that are not on another bdev and report no base
// bdevs.
var devices = []string{"Malloc disk", "Null disk", "NVMe disk", "NVMe ZNS disk", "NVMe Passthrough disk", "AIO disk", "URING bdev", "xNVMe bdev", "DAOS bdev", "iSCSI LUN", "Ceph Rbd Disk", "VirtioBlk Disk", "Virtio SCSI Disk"}

// basesIn returns the bdevs below a bdev, according to its description.
func basesIn(b spdkrpc.BdevInfo) (bases []string, kind basesKind) {
	d := b.DriverSpecific
	switch {
	case d.Lvol != nil || b.ProductName == "Logical Volume":
		return nil, onLvstore
	case d.Crypto != nil:
		bases = []string{d.Crypto.BaseBdevName}
	case d.Passthru != nil:
		bases = []string{d.Passthru.BaseBdevName}
	case d.Delay != nil:
		bases = []string{d.Delay.BaseBdevName}
	case d.ErrorDisk != nil:
		bases = []string{d.ErrorDisk.BaseBdev}
	case d.Split != nil:
		bases = []string{d.Split.BaseBdev}
	case d.Opal != nil:
		bases = []string{d.Opal.BaseBdev}
	case d.GPT != nil:
		bases = []string{d.GPT.BaseBdev}
	case d.ZonedBlock != nil:
		bases = []string{d.ZonedBlock.BaseBdev}
	case d.FTL != nil:
		bases = []string{d.FTL.BaseBdev, value(d.FTL.Cache)}
	case d.RAID != nil:
		bases = membersOf(d.RAID.BaseBdevsList)
	case d.Others["compress"] != nil:
		var c struct {
			Base string `json:"base_bdev_name"`
		}
		if json.Unmarshal(d.Others["compress"], &c) != nil {
			return nil, onUnknown
		}
		bases = []string{c.Base}
	case d.Others["core_device"] != nil && d.Others["cache_device"] != nil: // OCF
		for _, member := range []string{"core_device", "cache_device"} {
			var name string
			if json.Unmarshal(d.Others[member], &name) != nil {
				return nil, onUnknown
			}
			bases = append(bases, name)
		}
	case slices.Contains(devices, b.ProductName):
		return nil, onDevice
	}
	bases = slices.DeleteFunc(bases, func(name string) bool { return name == "" })
	if len(bases) == 0 {
		return nil, onUnknown
	}
	return bases, onBdevs
}

// membersOf returns the names of the RAID members in list, without missing members.
func membersOf(list []*spdkrpc.BdevRAIDBaseBdevEntry) (names []string) {
	for _, m := range list {
		switch {
		case m == nil:
		case m.String != nil:
			names = append(names, *m.String)
		case m.Object != nil:
			names = append(names, value(m.Object.Name))
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// withoutNested returns the lvstores that are not nested, with the facts about their base bdevs.
// ahead is the result of askAhead. It fails with ErrNested if a nested lvstore has a configured
// name.
func (s *Service) withoutNested(ctx context.Context, stores []Store, ahead map[string]verdict) ([]Store, error) {
	verdicts := make([]verdict, len(stores))
	g, gctx := errgroup.WithContext(ctx)
	for i, st := range stores {
		g.Go(func() error {
			var known bool
			if verdicts[i], known = ahead[st.Base]; !known {
				verdicts[i] = s.judgeBase(gctx, st.Base)
			}
			return ignore(verdicts[i].err, ErrNested)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var usable []Store
	var nested []string
	var why []error
	for i, st := range stores {
		switch err := verdicts[i].err; {
		case err == nil:
			st.unmapZeroes = verdicts[i].unmapZeroes
			usable = append(usable, st)
		case slices.Contains(s.Config.Stores, st.Name):
			return nil, fmt.Errorf("lvstore %s (%s) has a name that config.json lists in lvstores, but is not the lvstore that the administrator created, which is not loaded: %w", st.Name, st.UUID, err)
		default:
			nested, why = append(nested, st.Name), append(why, err)
		}
	}
	if len(usable) == 0 && len(nested) > 0 {
		return nil, fmt.Errorf("there is no usable lvstore besides %s: %w", strings.Join(nested, ", "), errors.Join(why...))
	}
	return usable, nil
}

// checkPlace fails with ErrNested if a volume is in a nested lvstore.
func (s *Service) checkPlace(ctx context.Context, v Volume, base string, ahead map[string]verdict) error {
	b, known := ahead[base]
	if !known {
		b = s.judgeBase(ctx, base)
	}
	if b.err != nil {
		return fmt.Errorf("%s cannot be used: %w", v, b.err)
	}
	return nil
}
