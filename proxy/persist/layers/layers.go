// Package layers determines what a bdev consists of: whether it is a logical volume, or a partition
// on a logical volume or on a disk.
//
// The package must not depend on how its results are used: package persist decides which bdevs the
// target examines.
package layers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Layers caches information about bdevs during one read of the target's configuration.
type Layers struct {
	Disks []string // disks below the partitions that WithoutVolumes has returned
	ask   Ask
	known map[string][]string // see stack
}

// Ask makes a call to the target.
type Ask = func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error)

// New returns Layers that use ask to query the target.
func New(ask Ask) *Layers { return &Layers{ask: ask, known: map[string][]string{}} }

// WithoutVolumes returns the names of bdevs that are neither logical volumes nor partitions on
// them. It adds the disks that contain the partitions to Disks.
func (l *Layers) WithoutVolumes(ctx context.Context, names []string) (kept []string, err error) {
	for _, name := range names {
		disks, known := l.known[name]
		if !known {
			if disks, err = l.stack(ctx, name, 0); err != nil {
				return nil, err
			}
			l.known[name] = disks
		}
		if len(disks) > 0 {
			kept = append(kept, name)
			l.Disks = append(l.Disks, disks[1:]...)
		}
	}
	return kept, nil
}

// maxLayers limits the depth of partitions within partitions.
const maxLayers = 8

// stack returns a bdev and, if it is a partition, the disks below it. If one of these is a logical
// volume, stack returns an empty list. If a bdev does not exist, stack considers only its name.
func (l *Layers) stack(ctx context.Context, name string, depth int) ([]string, error) {
	text, err := l.ask(ctx, "bdev_get_bdevs", map[string]any{"name": name})
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		if NamesVolume(name) {
			return nil, nil
		}
		return []string{name}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bdev_get_bdevs of %s: %w", name, err)
	}
	var found []struct {
		Driver struct {
			LVol *struct{} `json:"lvol"`
			GPT  *struct {
				BaseBdev string `json:"base_bdev"`
			} `json:"gpt"`
		} `json:"driver_specific"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("bdev_get_bdevs of %s: %w", name, err)
	}
	if len(found) != 1 || found[0].Driver.LVol != nil || depth == maxLayers {
		return nil, nil
	}
	if gpt := found[0].Driver.GPT; gpt != nil && gpt.BaseBdev != "" {
		below, err := l.stack(ctx, gpt.BaseBdev, depth+1)
		if err != nil || below == nil {
			return nil, err
		}
		return slices.Concat([]string{name}, below), nil
	}
	return []string{name}, nil
}

// NamesVolume reports whether a name can refer to a logical volume (a UUID or lvstore/name), or to
// a partition on a logical volume.
func NamesVolume(name string) bool {
	id, _, _ := strings.Cut(name, "p")
	return uuid.Validate(id) == nil || strings.Contains(name, "/")
}
