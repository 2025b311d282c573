package persist

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestSavedFileExaminesBaseBdevs(t *testing.T) {
	const (
		off    = `{"method":"bdev_set_options","params":{"bdev_auto_examine":false}}`
		on     = `{"method":"bdev_set_options","params":{"bdev_auto_examine":true}}`
		volume = "2f1ab9d4-3f5e-4f5b-9f5f-0a8e3d0a7c11"
		disk   = "6b9a1c3e-7d35-4a53-9f5c-0a1b2c3d4e5f"
		raid   = `{"method":"bdev_raid_create","params":{"base_bdevs":["d0","d1"],"name":"raid"}}`
		pt     = `{"method":"bdev_passthru_create","params":{"base_bdev_name":"d2","name":"pt"}}`
		onLvol = `{"method":"bdev_passthru_create","params":{"base_bdev_name":"` + volume + `","name":"q"}}`
		ftl    = `{"method":"bdev_ftl_create","params":{"name":"f","base_bdev":"d3","cache":"c0"}}`
		ocf    = `{"method":"bdev_ocf_create","params":{"name":"o","mode":"wt","cache_bdev_name":"c1","core_bdev_name":"d4"}}`
		split  = `{"method":"bdev_split_create","params":{"base_bdev":"d5","split_count":2}}`
		crypto = `{"method":"bdev_crypto_create","params":{"base_bdev_name":"d6","name":"e","key_name":"k"}}`
		delay  = `{"method":"bdev_delay_create","params":{"base_bdev_name":"d7","name":"s"}}`
		zoned  = `{"method":"bdev_zone_block_create","params":{"base_bdev":"d8","name":"z"}}`
		list   = `{"method":"bdev_raid_add_base_bdev","params":{"base_bdev":"d9","raid_bdev":"raid"}}`
		wait   = `{"method":"bdev_wait_for_examine","params":null}`
	)
	stores := `[{"base_bdev":"raid"},{"base_bdev":"` + volume + `"},{"base_bdev":"lvs0/alias"},{"base_bdev":"pt"}]`
	raids := `[{"base_bdevs_list":[{"name":"r0"}],"superblock":false},{"base_bdevs_list":[{"name":"s0"},{"name":null},{"name":"` + volume + `p1"}],"superblock":true}]`
	const onPartitions = `[{"base_bdev":"gp1"},{"base_bdev":"` + disk + `"},{"base_bdev":"dev/sdb"},{"base_bdev":"` + volume + `p2"},{"base_bdev":"odd"}]`
	bdevs := map[string]string{
		"d2": "{}", "pt": "{}", "raid": "{}", "r0": "{}", "empty": "{}", disk: `{"driver_specific":{"aio":{}}}`, "dev/sdb": "{}",
		volume: `{"driver_specific":{"lvol":{}}}`, "lvs0/alias": `{"driver_specific":{"lvol":{}}}`, "odd": `{"driver_specific":{"gpt":{"base_bdev":"lvs0/alias"}}}`,
		volume + "p2": `{"driver_specific":{"gpt":{"base_bdev":"` + volume + `"}}}`,
		"gp1":         `{"driver_specific":{"gpt":{"base_bdev":"g"}}}`, "g": "{}",
	}
	examine := func(name string) string { return `{"method":"bdev_examine","params":{"name":"` + name + `"}}` }
	for name, c := range map[string]struct {
		disable      bool
		raids        string
		stores       string
		before, want []string
	}{
		"enabled option stays enabled":                      {disable: false, before: []string{on, raid, pt, wait}, want: []string{on, raid, pt, wait}},
		"enabled option is disabled":                        {disable: true, before: []string{on, raid, pt, onLvol, wait}, want: []string{off, examine("d2"), pt, onLvol, raid, examine("pt"), examine("raid"), wait}},
		"missing calls are added if the option is disabled": {disable: false, before: []string{off, examine("pt"), raid, pt, wait}, want: []string{off, examine("d2"), pt, raid, examine("pt"), examine("raid"), wait}},
		"nothing more is needed":                            {disable: true, before: []string{off, examine("raid"), examine("pt"), wait}, want: []string{off, examine("pt"), examine("raid"), wait}},
		"no options":                                        {disable: true, before: []string{pt, wait}, want: []string{pt, wait}},
		"nothing waits":                                     {before: []string{off, raid, pt}, want: []string{off, examine("d2"), pt, raid, examine("pt"), examine("raid")}},
		"several bases": {before: []string{off, ftl, ocf, split, crypto, delay, zoned, pt, list}, want: []string{
			off, examine("d2"), examine("d5"), examine("d6"), examine("d7"), examine("d8"), ftl, ocf, split, crypto, delay, zoned, pt, list, examine("pt"), examine("raid"),
		}},
		"bdevs without lvstores are not examined": {before: []string{off, examine("empty"), wait}, want: []string{off, examine("pt"), examine("raid"), wait}},
		"bdevs that do not exist yet":             {before: []string{off, examine("late"), wait}, want: []string{off, examine("late"), examine("pt"), examine("raid"), wait}},
		"only disks with a superblock":            {raids: raids, before: []string{off, examine("r0"), wait}, want: []string{off, examine("s0"), examine("pt"), examine("raid"), wait}},
		"an lvstore that is loaded now":           {before: []string{off, examine("slow"), wait}, want: []string{off, examine("slow"), examine("pt"), examine("raid"), wait}},
		"disks named like volumes, and disks of partitions": {stores: onPartitions, before: []string{off, examine("g"), wait}, want: []string{
			off, examine("g"), examine(disk), examine("dev/sdb"), examine("gp1"), wait,
		}},
		"no calls": {disable: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := Subsystem{Name: "bdev"}
			for _, call := range c.before {
				s.Calls = append(s.Calls, json.RawMessage(call))
			}
			examined := false
			stores := cmp.Or(c.stores, stores)
			asked, failAt := 0, 0
			ask := func(_ context.Context, method string, params map[string]any) (json.RawMessage, error) {
				if asked++; asked == failAt {
					return nil, errors.New("struck")
				}
				switch method {
				case "bdev_lvol_get_lvstores":
					if examined {
						return json.RawMessage(stores[:len(stores)-1] + `,{"base_bdev":"slow"}]`), nil
					}
					return json.RawMessage(stores), nil
				case "bdev_wait_for_examine":
					examined = true
					return json.RawMessage("true"), nil
				case "bdev_raid_get_bdevs":
					if c.raids == "" {
						return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.MethodNotFound}
					}
					return json.RawMessage(c.raids), nil
				}
				assert.Equal(t, "bdev_get_bdevs", method)
				found, exists := bdevs[params["name"].(string)]
				if !exists {
					return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.NoSuchDevice}
				}
				return json.RawMessage("[" + found + "]"), nil
			}
			requests := 0
			for failAt = 1; ; failAt++ { // if any response is missing, the configuration is not saved
				asked, examined = 0, false
				broken := Subsystem{Name: "bdev", Calls: slices.Clone(s.Calls)}
				err := broken.examineBases(t.Context(), ask, c.disable)
				if asked < failAt {
					require.NoError(t, err)
					requests = asked
					break
				}
				require.ErrorContains(t, err, "struck")
				assert.Equal(t, s.Calls, broken.Calls, "request %d", failAt)
			}
			asked, failAt, examined = 0, 0, false
			require.NoError(t, s.examineBases(t.Context(), ask, c.disable))
			assert.Equal(t, requests, asked)
			var got []string
			for _, call := range s.Calls {
				got = append(got, string(call))
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// If the base bdevs cannot be listed, the configuration is not saved. Otherwise, the saved file
// would lack the calls that examine them.
func TestUnreadableBaseBdevsPreventSaving(t *testing.T) {
	const off = `{"method":"bdev_set_options","params":{"bdev_auto_examine":false}}`
	for name, c := range map[string]struct {
		calls  []string
		stores string
		err    error
	}{
		"options":      {[]string{`{"method":1}`}, "[]", nil},
		"another call": {[]string{off, `{"method":1}`}, "[]", nil},
		"no list":      {[]string{off}, `{"base_bdev":"x"}`, nil},
		"no response":  {[]string{off}, "[]", errors.New("struck")},
	} {
		s := Subsystem{Name: "bdev"}
		for _, call := range c.calls {
			s.Calls = append(s.Calls, json.RawMessage(call))
		}
		before := slices.Clone(s.Calls)
		require.Error(t, s.examineBases(t.Context(), func(context.Context, string, map[string]any) (json.RawMessage, error) {
			return json.RawMessage(c.stores), c.err
		}, true), name)
		assert.Equal(t, before, s.Calls, name)
	}
}
