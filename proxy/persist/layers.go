package persist

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

// layers finds out which bdevs are logical volumes or partitions on one.
type layers struct {
	ask         Ask
	above       map[string][]string // known names and the names to examine for them; none for a volume
	partitioned []string            // disks of partitions
}

// withoutVolumes returns the names that are neither logical volumes nor partitions on one. It notes
// the disks of those that are partitions.
func (l *layers) withoutVolumes(ctx context.Context, names []string) (kept []string, err error) {
	for _, name := range names {
		disks, known := l.above[name]
		if !known {
			if disks, err = l.stack(ctx, name, 0); err != nil {
				return nil, err
			}
			l.above[name] = disks
		}
		if len(disks) > 0 {
			kept = append(kept, name)
			l.partitioned = append(l.partitioned, disks[1:]...)
		}
	}
	return kept, nil
}

// maxLayers bounds partitions within partitions.
const maxLayers = 8

// stack returns a bdev and, if it is a partition, the disks below it; nothing if a logical volume
// is among them. Only the name tells what a missing bdev is.
func (l *layers) stack(ctx context.Context, name string, depth int) ([]string, error) {
	text, err := l.ask(ctx, "bdev_get_bdevs", map[string]any{"name": name})
	if errors.Is(err, spdkrpc.NoSuchDevice) {
		if isVolumesName(name) {
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
		return nil, fmt.Errorf("bdev_get_bdevs of %s: %w", name, withoutValues(err))
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

// isVolumesName reports whether a name can refer to a logical volume (a UUID or lvstore/name), or
// to a partition on one.
func isVolumesName(name string) bool {
	id, _, _ := strings.Cut(name, "p")
	return uuid.Validate(id) == nil || strings.Contains(name, "/")
}
