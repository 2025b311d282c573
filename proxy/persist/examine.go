package persist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
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
// of one that will. bdev_examine of each bdev that another bdev lies on follows bdev_set_options,
// and bdev_examine of each bdev that an lvstore lies on follows the creation of all bdevs: the
// parents of external clones must exist when SPDK loads the lvstore, since they are not examined
// themselves. Nothing else is examined, even if the target's own list names it: hosts may write to
// a bdev after the lvstore on it was deleted. Logical volumes are never named, nor are the disks of
// a RAID, which contain the RAID's lvstore: the RAID comes after its disks and claims them
// unexamined.
func (s *Subsystem) examineBases(ctx context.Context, ask Ask, disable bool) error {
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
	stores, err := basesOfStores(ctx, ask)
	if err != nil {
		return err
	}
	rest := make([]json.RawMessage, 0, len(s.Calls))
	var listed, bases []string
	var raids []json.RawMessage
	for _, call := range s.Calls[1:] {
		e, err := entryOf(call)
		if err != nil {
			return err
		}
		switch name, named := e.Params["name"].(string); {
		case named && e.Method == examineBdev:
			listed = append(listed, name)
		case e.Method == "bdev_raid_create":
			raids = append(raids, call)
		default:
			rest = append(rest, call)
			bases = append(bases, basesOf(e)...)
		}
	}
	awaited, err := stillExamined(ctx, ask, listed, slices.Concat(stores, bases))
	if err != nil {
		return err
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
	named := map[string]bool{}
	before, err := examineCalls(slices.Concat(bases, awaited), named)
	if err != nil {
		return err
	}
	after, err := examineCalls(stores, named)
	if err != nil {
		return err
	}
	s.Calls = slices.Concat([]json.RawMessage{options}, before, rest[:waits], raids, after, rest[waits:])
	return nil
}

// examineCalls returns the calls that examine bdevs which are not named yet.
func examineCalls(bdevs []string, named map[string]bool) (calls []json.RawMessage, err error) {
	for _, name := range slices.Sorted(slices.Values(bdevs)) {
		if named[name] || isVolume(name) {
			continue
		}
		named[name] = true
		text, err := json.Marshal(entry{Method: examineBdev, Params: map[string]any{"name": name}})
		if err != nil {
			return nil, err
		}
		calls = append(calls, text)
	}
	return calls, nil
}

// stillExamined returns which bdevs of the target's own list are examined, in addition to those
// that something is known to lie on: those that do not exist now, and disks of RAIDs. On others,
// SPDK has looked for lvstores, and found none.
func stillExamined(ctx context.Context, ask Ask, listed, known []string) (names []string, err error) {
	listed = slices.DeleteFunc(listed, func(name string) bool { return slices.Contains(known, name) })
	if len(listed) == 0 {
		return nil, nil
	}
	if _, err := ask(ctx, "bdev_wait_for_examine", nil); err != nil {
		return nil, fmt.Errorf("bdev_wait_for_examine: %w", err)
	}
	stores, err := basesOfStores(ctx, ask) // again: the former list may be of a time when SPDK was loading one
	if err != nil {
		return nil, err
	}
	disks, err := disksOfRAIDs(ctx, ask)
	if err != nil {
		return nil, err
	}
	for _, name := range listed {
		if slices.Contains(stores, name) || slices.Contains(disks, name) {
			names = append(names, name)
			continue
		}
		_, err := ask(ctx, "bdev_get_bdevs", map[string]any{"name": name})
		switch {
		case errors.Is(err, spdkrpc.NoSuchDevice):
			names = append(names, name)
		case err != nil:
			return nil, fmt.Errorf("bdev_get_bdevs of %s: %w", name, err)
		}
	}
	return names, nil
}

func disksOfRAIDs(ctx context.Context, ask Ask) (names []string, err error) {
	var raids []struct {
		Disks []struct {
			Name string `json:"name"`
		} `json:"base_bdevs_list"`
	}
	text, err := ask(ctx, "bdev_raid_get_bdevs", map[string]any{"category": "all"})
	if errors.Is(err, spdkrpc.MethodNotFound) { // the target was built without RAIDs
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bdev_raid_get_bdevs: %w", err)
	}
	if err := json.Unmarshal(text, &raids); err != nil {
		return nil, fmt.Errorf("bdev_raid_get_bdevs: %w", withoutValues(err))
	}
	for _, raid := range raids {
		for _, disk := range raid.Disks {
			names = append(names, disk.Name)
		}
	}
	return names, nil
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
