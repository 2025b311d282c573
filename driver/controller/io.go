package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/metrics"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// measured contains the volumes that this process knows to be published, with their labels for
// metrics. After a restart, csi-attacher publishes every attached volume again, so measured is
// complete within a minute. A measured is safe for concurrent use, and its zero value is empty.
type measured struct {
	mu      sync.Mutex
	volumes map[string]*measuredVolume // by UUID
	denied  map[string]bool            // targets on which the user lacks permission to read statistics, by name
}

type measuredVolume struct {
	target, lvol     string
	namespace, claim string
	nodes            map[string]bool
	seen             time.Time // when the volume was last confirmed as published
}

// measuredFor limits how long a volume counts as published without confirmation. csi-attacher lists
// the volumes every minute, but no longer queries this replica once another replica has become the
// leader.
const measuredFor = 10 * time.Minute

// note records that a volume was published to a node.
func (m *measured) note(target string, v volume.Volume, node string, volumeContext map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.volumes == nil {
		m.volumes = map[string]*measuredVolume{}
	}
	known := m.volumes[v.UUID]
	if known == nil {
		known = &measuredVolume{nodes: map[string]bool{}}
		m.volumes[v.UUID] = known
	}
	known.target, known.lvol, known.seen = target, strings.TrimSuffix(v.Name, ".used"), time.Now()
	known.namespace, known.claim = volumeContext[request.KeyClaimNamespace], volumeContext[request.KeyClaim]
	known.nodes[node] = true
}

// stillPublished records that a volume is still published.
func (m *measured) stillPublished(uuid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.volumes[uuid]; v != nil {
		v.seen = time.Now()
	}
}

// forget records that a volume was unpublished from a node, or from all nodes if node is empty.
func (m *measured) forget(uuid, node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.volumes[uuid]
	if v == nil {
		return
	}
	if delete(v.nodes, node); node == "" || len(v.nodes) == 0 {
		delete(m.volumes, uuid)
	}
}

// list returns the volumes to measure, by target. It omits volumes that have not been confirmed
// within measuredFor.
func (m *measured) list() map[string][]metrics.VolumeIO {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string][]metrics.VolumeIO{}
	for uuid, v := range m.volumes {
		if time.Since(v.seen) > measuredFor {
			delete(m.volumes, uuid)
			continue
		}
		all[v.target] = append(all[v.target], metrics.VolumeIO{Target: v.target, Volume: uuid, Lvol: v.lvol, Namespace: v.namespace, Claim: v.claim})
	}
	return all
}

// deny records that this controller lacks permission to read a target's statistics. deny returns
// false if the lack of permission was already recorded.
func (m *measured) deny(target string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.denied == nil {
		m.denied = map[string]bool{}
	}
	known := m.denied[target]
	m.denied[target] = true
	return !known
}

// ioInFlight is the maximum number of queries in flight to a target. The limit is low because no
// call is waiting for these queries.
const ioInFlight = 8

// measureIO records the I/O of the published volumes as metrics, with one query per volume.
// measureIO needs the same permissions as measureSpace. It omits volumes on unresponsive targets.
func (c *Controller) measureIO(ctx context.Context) {
	if c.targets.metrics == nil || c.credentialsFile == "" {
		return
	}
	services, err := c.openTargets(c.targets.placement, nil, "")
	if err != nil {
		return // measureSpace has logged the error
	}
	volumes := c.measured.list()
	parts := make([][]metrics.VolumeIO, len(services))
	var wg sync.WaitGroup
	for i, s := range services {
		wg.Go(func() { parts[i] = c.ioOf(ctx, s, volumes[s.Name]) })
	}
	wg.Wait()
	c.targets.metrics.Volumes(slices.Concat(parts...))
}

func (c *Controller) ioOf(ctx context.Context, s *volume.Service, volumes []metrics.VolumeIO) []metrics.VolumeIO {
	ctx, cancel := context.WithTimeout(ctx, spaceInterval/2)
	defer cancel()
	slices.SortFunc(volumes, func(a, b metrics.VolumeIO) int { return cmp.Compare(a.Volume, b.Volume) })
	known := make([]bool, len(volumes))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(ioInFlight)
	for i := range volumes {
		g.Go(func() error {
			io, err := s.IOStat(ctx, volumes[i].Volume)
			if errors.Is(err, volume.ErrNotFound) { // deleted, or not loaded
				return nil
			}
			if err != nil {
				return err
			}
			v := &volumes[i]
			v.Reads, v.Writes, v.Unmaps = io.Reads, io.Writes, io.Unmaps
			v.ReadBytes, v.WrittenBytes, v.UnmappedBytes = io.ReadBytes, io.WrittenBytes, io.UnmappedBytes
			v.ReadSeconds, v.WriteSeconds = io.ReadTime.Seconds(), io.WriteTime.Seconds()
			known[i] = true
			return nil
		})
	}
	err := g.Wait()
	if errors.Is(err, spdkrpc.Denied) && !errors.Is(err, spdkrpc.ErrCredentials) && c.measured.deny(s.Name) {
		c.log.WarnContext(ctx, "the I/O of volumes is not measured: allow bdev_get_iostat", "target", s.Name, "error", err)
	}
	var all []metrics.VolumeIO
	for i, v := range volumes {
		if known[i] {
			all = append(all, v)
		}
	}
	return all
}
