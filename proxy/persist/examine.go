package persist

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// With bdev_auto_examine on, SPDK loads the lvstores and RAIDs that it finds on any new bdev,
// including those that hosts wrote into their volumes. With it off, SPDK examines only what
// bdev_examine names. SPDK saves these calls, but not for a disk whose lvstore was created by a
// call, nor for the bases of other bdevs: after a restart, their volumes would not exist.

const (
	setBdevOptions = "bdev_set_options"
	autoExamine    = "bdev_auto_examine"
	examineBdev    = "bdev_examine"
)

// basesIn are the parameters of calls that create bdevs on other ones, except for RAIDs.
var basesIn = []string{"base_bdev_name", "base_bdev", "cache", "cache_bdev_name", "core_bdev_name"}

// examineBases completes the calls of a target that examines only what is named, or, with disable,
// of one that will: bdev_examine of each bdev that an lvstore or another bdev lies on follows
// bdev_set_options. Logical volumes are never named, nor are the disks of a RAID, which contain the
// RAID's lvstore: the RAID comes after its disks and claims them unexamined. external returns the
// bdevs outside of lvstores that volumes are clones of.
func (s *Subsystem) examineBases(ctx context.Context, ask Ask, disable bool, external func(context.Context) ([]string, error)) error {
	if s.Name != "bdev" || len(s.Calls) == 0 {
		return nil
	}
	first, err := entryOf(s.Calls[0])
	if err != nil || first.Method != setBdevOptions {
		return err
	}
	if on, known := first.Params[autoExamine].(bool); !known || on && !disable {
		return nil
	}
	wanted, err := basesOfStores(ctx, ask)
	if err != nil {
		return err
	}
	parents, err := external(ctx)
	if err != nil {
		return err
	}
	wanted = append(wanted, parents...)
	named := map[string]bool{}
	rest := make([]json.RawMessage, 0, len(s.Calls))
	var examined, raids []json.RawMessage
	for _, call := range s.Calls[1:] {
		e, err := entryOf(call)
		if err != nil {
			return err
		}
		if name, ok := e.Params["name"].(string); ok && e.Method == examineBdev {
			named[name] = true
			examined = append(examined, call)
			continue
		}
		if e.Method == "bdev_raid_create" {
			raids = append(raids, call)
			continue
		}
		rest = append(rest, call)
		wanted = append(wanted, basesOf(e)...)
	}
	slices.Sort(wanted)
	for _, name := range wanted {
		if !named[name] && !isVolume(name) {
			named[name] = true
			text, err := json.Marshal(entry{Method: examineBdev, Params: map[string]any{"name": name}})
			if err != nil {
				return err
			}
			examined = append(examined, text)
		}
	}
	params := maps.Clone(first.Params)
	params[autoExamine] = false
	options, err := json.Marshal(entry{Method: setBdevOptions, Params: params})
	if err != nil {
		return err
	}
	waits := slices.IndexFunc(rest, func(call json.RawMessage) bool {
		e, err := entryOf(call)
		return err == nil && (e.Method == "bdev_get_bdevs" || e.Method == "bdev_wait_for_examine")
	})
	if waits < 0 {
		waits = len(rest)
	}
	s.Calls = slices.Concat([]json.RawMessage{options}, examined, rest[:waits], raids, rest[waits:])
	return nil
}

func basesOfStores(ctx context.Context, ask Ask) (names []string, err error) {
	text, err := ask(ctx, "bdev_lvol_get_lvstores", nil)
	if err != nil {
		return nil, fmt.Errorf("bdev_lvol_get_lvstores: %w", err)
	}
	var stores []struct {
		BaseBdev string `json:"base_bdev"`
	}
	if err := json.Unmarshal(text, &stores); err != nil {
		return nil, fmt.Errorf("bdev_lvol_get_lvstores: %w", withoutValues(err))
	}
	for _, store := range stores {
		if store.BaseBdev != "" {
			names = append(names, store.BaseBdev)
		}
	}
	return names, nil
}

// basesOf returns the bdevs that a call creates another bdev on.
func basesOf(e entry) (names []string) {
	if !strings.HasSuffix(e.Method, "_create") {
		return nil
	}
	for _, param := range basesIn {
		if base, ok := e.Params[param].(string); ok {
			names = append(names, base)
		}
	}
	return names
}

// isVolume reports whether a name can be a logical volume's: its UUID or lvstore/name.
func isVolume(name string) bool {
	return uuid.Validate(name) == nil || strings.Contains(name, "/")
}
