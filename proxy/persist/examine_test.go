package persist

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBasesAreExamined(t *testing.T) {
	const (
		off    = `{"method":"bdev_set_options","params":{"bdev_auto_examine":false}}`
		on     = `{"method":"bdev_set_options","params":{"bdev_auto_examine":true}}`
		volume = "2f1ab9d4-3f5e-4f5b-9f5f-0a8e3d0a7c11"
		raid   = `{"method":"bdev_raid_create","params":{"base_bdevs":["d0","d1"],"name":"raid"}}`
		pt     = `{"method":"bdev_passthru_create","params":{"base_bdev_name":"d2","name":"pt"}}`
		onLvol = `{"method":"bdev_passthru_create","params":{"base_bdev_name":"` + volume + `","name":"q"}}`
		wait   = `{"method":"bdev_wait_for_examine","params":null}`
	)
	stores := `[{"base_bdev":"raid"},{"base_bdev":"` + volume + `"},{"base_bdev":"lvs0/alias"},{"base_bdev":"pt"}]`
	examine := func(name string) string { return `{"method":"bdev_examine","params":{"name":"` + name + `"}}` }
	for name, c := range map[string]struct {
		disable      bool
		before, want []string
	}{
		"on stays on":            {false, []string{on, raid, pt, wait}, []string{on, raid, pt, wait}},
		"on is disabled":         {true, []string{on, raid, pt, onLvol, wait}, []string{off, examine("d2"), examine("pt"), examine("raid"), pt, onLvol, raid, wait}},
		"off is completed":       {false, []string{off, examine("pt"), raid, pt, wait}, []string{off, examine("pt"), examine("d2"), examine("raid"), pt, raid, wait}},
		"nothing more is needed": {true, []string{off, examine("raid"), examine("pt"), wait}, []string{off, examine("raid"), examine("pt"), wait}},
		"no options":             {true, []string{pt, wait}, []string{pt, wait}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Subsystem{Name: "bdev"}
			for _, call := range c.before {
				s.Calls = append(s.Calls, json.RawMessage(call))
			}
			require.NoError(t, s.examineBases(t.Context(), func(context.Context, string, map[string]any) (json.RawMessage, error) {
				return json.RawMessage(stores), nil
			}, c.disable))
			var got []string
			for _, call := range s.Calls {
				got = append(got, string(call))
			}
			assert.Equal(t, c.want, got)
		})
	}
}
