package persist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spdkgate/spdkgate/proxy/persist/layers"
	"github.com/spdkgate/spdkgate/proxy/persist/raids"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// With bdev_auto_examine enabled, SPDK loads lvstores and RAIDs from any new bdev, including those
// that hosts have written to their volumes. With the option disabled, SPDK examines only bdevs
// named in calls of bdev_examine. SPDK saves such calls, but it adds none for a disk on which a
// call created an lvstore, or for the bases of other bdevs. The volumes on these disks would be
// missing after a restart.

const (
	setBdevOptions = "bdev_set_options"
	autoExamine    = "bdev_auto_examine"
	examineBdev    = "bdev_examine"
)

// waiting lists the methods whose calls SPDK saves before the call that creates their base bdev. It
// maps each method to the parameter that names the base bdev. When SPDK examines such a base bdev,
// the new bdev claims it before SPDK reads its content. Calls of other methods are saved after
// their base bdevs, which are not examined, because hosts can write to the first block of the base
// of an FTL or OCF bdev.
var waiting = map[string]string{
	"bdev_crypto_create":     "base_bdev_name",
	"bdev_delay_create":      "base_bdev_name",
	"bdev_error_create":      "base_name",
	"bdev_passthru_create":   "base_bdev_name",
	"bdev_split_create":      "base_bdev",
	"bdev_zone_block_create": "base_bdev",
}

// examineBases adds the missing bdev_examine calls for a target that examines only named bdevs or,
// with disable, will do so after its restart. After bdev_set_options, it adds calls that examine
// each bdev for which another bdev waits. It also adds calls that examine the disks of each RAID
// with a superblock, because SPDK saves no other call for such a RAID. After the calls that create
// bdevs, it adds calls that examine each bdev with an lvstore. The parents of external clones must
// exist when SPDK loads that lvstore, because the parents are not examined themselves. Other bdevs
// are not examined, even if the target's own list names them: hosts may write to a bdev after the
// lvstore on it was deleted, and to the first block of the disks of a RAID without a superblock.
// The saved file creates a RAID without a superblock after its disks, and the RAID claims the disks
// without an examination. Partitions exist only if their disk is examined. Logical volumes, and
// partitions on them, are never named.
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
	mirrors, err := raids.List(ctx, ask)
	if err != nil {
		return err
	}
	var bases []string
	for _, r := range mirrors {
		bases = append(bases, r.Disks...)
	}
	rest := make([]json.RawMessage, 0, len(s.Calls))
	var listed []string
	var creations []json.RawMessage
	for _, call := range s.Calls[1:] {
		e, err := entryOf(call)
		if err != nil {
			return err
		}
		switch name, named := e.Params["name"].(string); {
		case named && e.Method == examineBdev:
			listed = append(listed, name)
		case e.Method == "bdev_raid_create":
			creations = append(creations, call)
		default:
			rest = append(rest, call)
			if base, waits := e.Params[waiting[e.Method]].(string); waits {
				bases = append(bases, base)
			}
		}
	}
	awaited, err := stillExamined(ctx, ask, listed, slices.Concat(stores, bases))
	if err != nil {
		return err
	}
	disks := layers.New(ask)
	if stores, err = disks.WithoutVolumes(ctx, stores); err != nil {
		return err
	}
	if bases, err = disks.WithoutVolumes(ctx, slices.Concat(bases, awaited)); err != nil {
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
	before, err := examineCalls(slices.Concat(bases, disks.Disks), named)
	if err != nil {
		return err
	}
	after, err := examineCalls(stores, named)
	if err != nil {
		return err
	}
	s.Calls = slices.Concat([]json.RawMessage{options}, before, rest[:waits], creations, after, rest[waits:])
	return nil
}

// examineCalls returns calls that examine those bdevs that no call names yet.
func examineCalls(bdevs []string, named map[string]bool) (calls []json.RawMessage, err error) {
	for _, name := range slices.Sorted(slices.Values(bdevs)) {
		if named[name] {
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

// stillExamined returns the bdevs in the target's own list that must be examined in addition to the
// known bdevs: bdevs that do not exist now, and bdevs on which SPDK has found lvstores in the
// meantime. On all other bdevs, SPDK has found no lvstores.
func stillExamined(ctx context.Context, ask Ask, listed, known []string) (names []string, err error) {
	listed = slices.DeleteFunc(listed, func(name string) bool { return slices.Contains(known, name) })
	if len(listed) == 0 {
		return nil, nil
	}
	if _, err := ask(ctx, "bdev_wait_for_examine", nil); err != nil {
		return nil, fmt.Errorf("bdev_wait_for_examine: %w", err)
	}
	stores, err := basesOfStores(ctx, ask) // again: SPDK may have been loading an lvstore before
	if err != nil {
		return nil, err
	}
	for _, name := range listed {
		if slices.Contains(stores, name) {
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
