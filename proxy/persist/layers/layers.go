// Package layers finds out which bdevs are logical volumes or partitions on one.
//
// It must not depend on why a bdev is examined, which package persist decides.
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

// A Finder looks at the target's bdevs once each.
type Finder struct {
	ask         func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error)
	above       map[string][]string // known names and the names to examine for them; none for a volume
	partitioned []string            // disks of partitions
}

// New returns a Finder that calls a target with ask.
func New(ask func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error)) *Finder {
	return &Finder{ask: ask, above: map[string][]string{}}
}

// Partitioned returns the disks below the partitions that WithoutVolumes returned so far.
func (f *Finder) Partitioned() []string { return f.partitioned }

// WithoutVolumes returns the names that are neither logical volumes nor partitions on one. It notes
// the disks of those that are partitions.
func (f *Finder) WithoutVolumes(ctx context.Context, names []string) (kept []string, err error) {
	for _, name := range names {
		disks, known := f.above[name]
		if !known {
			if disks, err = f.stack(ctx, name, 0); err != nil {
				return nil, err
			}
			f.above[name] = disks
		}
		if len(disks) > 0 {
			kept = append(kept, name)
			f.partitioned = append(f.partitioned, disks[1:]...)
		}
	}
	return kept, nil
}

// maxLayers bounds partitions within partitions.
const maxLayers = 8

// stack returns a bdev and, if it is a partition, the disks below it; nothing if a logical volume
// is among them. Only the name tells what a missing bdev is.
func (f *Finder) stack(ctx context.Context, name string, depth int) ([]string, error) {
	text, err := f.ask(ctx, "bdev_get_bdevs", map[string]any{"name": name})
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		if IsVolumesName(name) {
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
		return nil, fmt.Errorf("bdev_get_bdevs of %s: the response cannot be decoded", name) // without its values
	}
	if len(found) != 1 || found[0].Driver.LVol != nil || depth == maxLayers {
		return nil, nil
	}
	if gpt := found[0].Driver.GPT; gpt != nil && gpt.BaseBdev != "" {
		below, err := f.stack(ctx, gpt.BaseBdev, depth+1)
		if err != nil || below == nil {
			return nil, err
		}
		return slices.Concat([]string{name}, below), nil
	}
	return []string{name}, nil
}

// IsVolumesName reports whether a name can refer to a logical volume (a UUID or lvstore/name), or
// to a partition on one.
func IsVolumesName(name string) bool {
	id, _, _ := strings.Cut(name, "p")
	return uuid.Validate(id) == nil || strings.Contains(name, "/")
}
