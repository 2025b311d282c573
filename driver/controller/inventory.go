package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// Inventory reads the named targets of config.json concurrently, or all targets if names is empty.
// It uses the controller's own credentials and changes nothing. A target that cannot be read within
// timeout has an error in its entry. Inventory fails if a name is unknown.
func (c *Controller) Inventory(ctx context.Context, names []string, timeout time.Duration) (inventory.Inventory, error) {
	services, err := c.openTargets(c.targets.placement, nil, "")
	if err != nil {
		return inventory.Inventory{}, err
	}
	for _, name := range names {
		if _, err := c.targets.config(name); err != nil {
			return inventory.Inventory{}, err
		}
	}
	services = slices.DeleteFunc(services, func(s *volume.Service) bool { return len(names) > 0 && !slices.Contains(names, s.Name) })
	return c.readEach(ctx, services, timeout, readInventory), nil
}

// InventoryOfFencedNodes lists the nodes that are fenced on the targets of config.json. It uses the
// controller's own credentials and changes nothing. A target that cannot be read within timeout has
// an error in its entry.
func (c *Controller) InventoryOfFencedNodes(ctx context.Context, timeout time.Duration) (inventory.Inventory, error) {
	services, err := c.openTargets(c.targets.placement, nil, "")
	if err != nil {
		return inventory.Inventory{}, err
	}
	return c.readEach(ctx, services, timeout, readFenced), nil
}

func readFenced(ctx context.Context, s *volume.Service, t *inventory.Target) error {
	inspection, err := s.Exports().Inspect(ctx)
	if err != nil {
		return err
	}
	for _, f := range inspection.Fenced {
		listed := inventory.Fenced{Host: f.ID(), Label: f.Label}
		if !f.Since.IsZero() {
			listed.Since = &f.Since
		}
		t.Fenced = append(t.Fenced, listed)
	}
	return nil
}

// readEach reads targets concurrently. A target that cannot be read within timeout has an error in
// its entry.
func (c *Controller) readEach(ctx context.Context, services []*volume.Service, timeout time.Duration, read func(context.Context, *volume.Service, *inventory.Target) error) inventory.Inventory {
	all := inventory.Inventory{Targets: make([]inventory.Target, len(services))}
	var wg sync.WaitGroup
	for i, s := range services {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			cfg, _ := c.targets.config(s.Name) // cannot fail: openTargets has found the target
			all.Targets[i] = inventoryOf(ctx, s, cfg, read)
		})
	}
	wg.Wait()
	return all
}

// InventoryOfSnapshots returns the reasons why snapshots cannot be deleted. ids are snapshot
// handles, as Kubernetes stores them. InventoryOfSnapshots uses the controller's own credentials
// and changes nothing. A target that does not respond within timeout has an error in its entry. The
// call fails if an id does not name a target in config.json.
func (c *Controller) InventoryOfSnapshots(ctx context.Context, ids []string, timeout time.Duration) (inventory.Inventory, error) {
	services, err := c.openTargets(c.targets.placement, nil, "")
	if err != nil {
		return inventory.Inventory{}, err
	}
	snapshots := map[string][]request.VolumeID{}
	for _, text := range ids {
		id, err := request.ParseVolumeID(text)
		if err != nil {
			return inventory.Inventory{}, err
		}
		if _, err := c.targets.config(id.Target); err != nil {
			return inventory.Inventory{}, err
		}
		snapshots[id.Target] = append(snapshots[id.Target], id)
	}
	services = slices.DeleteFunc(services, func(s *volume.Service) bool { return len(snapshots[s.Name]) == 0 })
	return c.readEach(ctx, services, timeout, func(ctx context.Context, s *volume.Service, t *inventory.Target) error {
		return readSnapshots(ctx, s, t, snapshots[s.Name])
	}), nil
}

func readSnapshots(ctx context.Context, s *volume.Service, t *inventory.Target, ids []request.VolumeID) error {
	for _, id := range ids {
		listed := inventory.Snapshot{ID: id.String()}
		switch err := s.Undeletable(ctx, id.UUID); {
		case err == nil:
		case errors.Is(err, volume.ErrInUse), errors.Is(err, volume.ErrNoSpace), errors.Is(err, volume.ErrBusy):
			listed.Undeletable = err.Error()
		default:
			return err
		}
		t.Snapshots = append(t.Snapshots, listed)
	}
	return nil
}

func inventoryOf(ctx context.Context, s *volume.Service, cfg config.Target, readTarget func(context.Context, *volume.Service, *inventory.Target) error) inventory.Target {
	t := inventory.Target{Name: s.Name, Transport: string(cfg.Transport()), Topology: cfg.Topology}
	read := t
	if err := readTarget(ctx, s, &read); err != nil {
		t.Error = err.Error()
		return t
	}
	return read
}

func readInventory(ctx context.Context, s *volume.Service, t *inventory.Target) error {
	stores, err := s.Stores(ctx)
	if err != nil {
		return err
	}
	byName := map[string]volume.Store{}
	for _, st := range stores {
		byName[st.Name] = st
		used, err := s.Usage(ctx, st)
		if err != nil {
			return err
		}
		largest, err := s.LargestVolume(ctx, st, false)
		if err != nil {
			return err
		}
		t.Stores = append(t.Stores, inventory.Store{
			Name: st.Name, TotalBytes: st.TotalBytes, FreeBytes: st.FreeBytes,
			PromisedBytes: used.PromisedBytes, LargestBytes: largest, LongestChain: used.LongestChain,
		})
	}
	volumes, _, err := s.List(ctx, volume.Page{})
	if err != nil {
		return err
	}
	exports, err := exportsOf(ctx, s)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		health, err := s.HealthOf(ctx, v, byName)
		if errors.Is(err, volume.ErrNotFound) {
			continue // deleted in the meantime
		}
		if err != nil {
			return err
		}
		listed := inventory.Volume{
			ID: request.VolumeID{Target: s.Name, UUID: v.UUID}.String(), Name: v.Name, Store: v.Store, SizeBytes: v.SizeBytes, Thin: v.Thin, Export: exports[v.UUID],
		}
		if v.Allocated != nil {
			listed.AllocatedBytes = new(int64(*v.Allocated) * byName[v.Store].ClusterBytes)
		}
		for _, condition := range health.Conditions {
			listed.Conditions = append(listed.Conditions, condition.Reason+": "+condition.Message)
		}
		t.Volumes = append(t.Volumes, listed)
	}
	return nil
}

// exportsOf returns a target's exports by volume UUID.
func exportsOf(ctx context.Context, s *volume.Service) (map[string]*inventory.Export, error) {
	inspection, err := s.Exports().Inspect(ctx)
	if err != nil {
		return nil, err
	}
	found := inspection.Exports
	ids := make([]string, len(found))
	for i, f := range found {
		ids[i] = f.Volume
	}
	connected, err := s.Exports().ConnectedEach(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("target %s: list the connected hosts: %w", s.Name, err)
	}
	exports := map[string]*inventory.Export{}
	for i, f := range found {
		e := &inventory.Export{Name: f.Name, Hosts: f.Hosts, Open: f.Open, Connected: connected[i]}
		for _, at := range s.Listen {
			e.Paths = append(e.Paths, inventory.Path{Address: at.String(), Listening: !slices.ContainsFunc(f.NotListening, func(p export.Portal) bool { return p == at })})
		}
		exports[f.Volume] = e
	}
	return exports, nil
}
