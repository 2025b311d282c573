package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/inventory"
)

// A Capacity is a storage capacity that Kubernetes has recorded for a topology.
type Capacity struct {
	// Topology lists labels as KEY=VALUE, separated by commas; empty if all nodes reach all
	// targets.
	Topology string `json:"topology,omitempty"`
	Class    string `json:"class"`
	Capacity string `json:"capacity"`
	// Largest is the size of the largest volume that can be created.
	Largest string `json:"largestVolume,omitempty"`
}

// Capacities returns a driver's CSIStorageCapacity objects. If Kubernetes does not track the
// driver's capacity, there are no such objects.
func (c Client) Capacities(ctx context.Context, driver string) ([]Capacity, error) {
	objects, err := list[storageCapacity](ctx, c, capacitiesPath, url.Values{"labelSelector": {"csi.storage.k8s.io/drivername=" + driver}})
	if err != nil {
		return nil, err
	}
	var all []Capacity
	for _, o := range objects {
		all = append(all, Capacity{Topology: labels(o.NodeTopology.MatchLabels), Class: o.StorageClassName, Capacity: cmp.Or(o.Capacity, "0"), Largest: o.MaximumVolumeSize})
	}
	slices.SortFunc(all, func(a, b Capacity) int {
		return cmp.Or(cmp.Compare(a.Topology, b.Topology), cmp.Compare(a.Class, b.Class))
	})
	return all, nil
}

func labels(m map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, key+"="+m[key])
	}
	return strings.Join(pairs, ",")
}

// A Store describes an lvstore on a target.
type Store struct {
	Target   string `json:"target"`
	Topology string `json:"topology,omitempty"`
	inventory.Store
	Volumes int `json:"volumes"` // number of volumes
}

// Stores returns the lvstores in an inventory.
func Stores(inv inventory.Inventory) (all []Store) {
	for _, t := range inv.Targets {
		for _, st := range t.Stores {
			s := Store{Target: t.Name, Topology: labels(t.Topology), Store: st}
			for _, v := range t.Volumes {
				if v.Store == st.Name {
					s.Volumes++
				}
			}
			all = append(all, s)
		}
	}
	return all
}

// Inventory reads the named targets of config.json through the controller's pod, or all targets if
// names is empty. Targets that cannot be read have an error in their entries.
func (c Client) Inventory(ctx context.Context, targets ...string) (inventory.Inventory, error) {
	return c.inventory(ctx, prefixed("--target=", targets)...)
}

// InventoryOfSnapshots returns the reasons why snapshots cannot be deleted. It queries targets
// through the controller's pod. ids are snapshot handles, as Kubernetes stores them. Targets that
// cannot be queried have an error in their entries.
func (c Client) InventoryOfSnapshots(ctx context.Context, ids []string) (inventory.Inventory, error) {
	return c.inventory(ctx, prefixed("--snapshot=", ids)...)
}

// prefixed returns an argument for each value of a flag.
func prefixed(flag string, values []string) (args []string) {
	for _, value := range values {
		args = append(args, flag+value)
	}
	return args
}

func (c Client) inventory(ctx context.Context, args ...string) (inventory.Inventory, error) {
	var out, notes bytes.Buffer
	failed := c.Run(ctx, &out, &notes, append([]string{"inventory"}, args...)...)
	var all inventory.Inventory
	if err := json.Unmarshal(out.Bytes(), &all); err == nil && len(all.Targets) > 0 {
		return all, nil
	}
	if failed == nil {
		failed = errors.New("the command printed no inventory")
	}
	return all, fmt.Errorf("run spdk-csi inventory in %s of namespace %s: %w", c.Controller, c.Namespace, reason(failed, &notes))
}

// Unread returns the errors of unreadable targets, or nil if all targets were read.
func Unread(inv inventory.Inventory) error {
	var failed []error
	for _, t := range inv.Targets {
		if t.Error != "" {
			failed = append(failed, fmt.Errorf("storage server %s is not shown: %s", t.Name, t.Error))
		}
	}
	return errors.Join(failed...)
}
