package raids

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestRAIDsAreListed(t *testing.T) {
	list := func(text string, err error) ([]Raid, error) {
		return List(t.Context(), func(_ context.Context, method string, params map[string]any) (json.RawMessage, error) {
			assert.Equal(t, "bdev_raid_get_bdevs", method)
			assert.Equal(t, map[string]any{"category": "all"}, params)
			return json.RawMessage(text), err
		})
	}
	found, err := list(`[{"name":"plain","superblock":false,"base_bdevs_list":[{"name":"d0"}]},{"name":"r","superblock":true,"base_bdevs_list":[{"name":"d1"},{"name":null},{"name":"d2"}]}]`, nil)
	require.NoError(t, err)
	assert.Equal(t, []Raid{{"r", []string{"d1", "d2"}}}, found)

	found, err = list("", &spdkrpc.Error{Kind: spdkrpc.MethodNotFound})
	require.NoError(t, err)
	assert.Empty(t, found)

	gone := errors.New("gone")
	_, err = list("", gone)
	require.ErrorIs(t, err, gone)
	_, err = list(`"secret"`, nil)
	require.ErrorContains(t, err, "bdev_raid_get_bdevs")
	assert.NotContains(t, err.Error(), "secret")
}

// If a RAID has fewer disks than its level requires, placeholder names are added to its list of
// disks.
func TestIncompleteRAIDsArePadded(t *testing.T) {
	for given, want := range map[string]string{
		`{"method":"bdev_raid_create","params":{"base_bdevs":["d0"],"name":"r","raid_level":"raid1"}}`:       `{"method":"bdev_raid_create","params":{"base_bdevs":["d0","removed_base_bdev_1"],"name":"r","raid_level":"raid1"}}`,
		`{"method":"bdev_raid_create","params":{"base_bdevs":["d0","d1"],"name":"r","raid_level":"raid5f"}}`: `{"method":"bdev_raid_create","params":{"base_bdevs":["d0","d1","removed_base_bdev_2"],"name":"r","raid_level":"raid5f"}}`,
		`{"method":"bdev_raid_create","params":{"base_bdevs":["d0","d1"],"name":"r","raid_level":"raid1"}}`:  "",
		`{"method":"bdev_raid_create","params":{"base_bdevs":["d0"],"name":"r","raid_level":"concat"}}`:      "",
		`{"method":"bdev_raid_create","params":[]}`:                                                          "",
	} {
		assert.Equal(t, cmp.Or(want, given), string(Padded(json.RawMessage(given))))
	}
}

func TestUnrestorableRAIDsAreFound(t *testing.T) {
	superblock := []Raid{{"r", []string{"d0", "d1"}}}
	const (
		d0     = `{"method":"bdev_aio_create","params":{"name":"d0","uuid":"3e7a25a8-6a44-4b5e-9c5f-1d1d6a8d5b7e"}}`
		d1     = `{"method":"bdev_aio_create","params":{"name":"d1","uuid":"d8b4d2d5-07e5-4e2f-8ac5-3cfb3b6f4a0e"}}`
		noUUID = `{"method":"bdev_aio_create","params":{"name":"d1"}}`
		uring  = `{"method":"bdev_uring_create","params":{"name":"d1"}}`
		malloc = `{"method":"bdev_malloc_create","params":{"name":"d1","uuid":"d8b4d2d5-07e5-4e2f-8ac5-3cfb3b6f4a0e"}}`
		nvme   = `{"method":"bdev_nvme_attach_controller","params":{"name":"d1"}}`
		odd    = `{"method":"bdev_aio_create","params":{"name":1}}`
		other  = `{"method":"bdev_aio_create","params":{"name":"d9"}}`
		plain  = `{"method":"bdev_raid_create","params":{"name":"p","base_bdevs":["d9","d0"]}}`
		lacks  = `{"method":"bdev_raid_create","params":{"name":"p","base_bdevs":["d9","removed_base_bdev_1"]}}`
	)
	for name, c := range map[string]struct {
		raids []Raid
		calls []string
		want  []Lost
	}{
		"saved UUIDs":                         {superblock, []string{d0, d1}, nil},
		"no saved UUID":                       {superblock, []string{d0, noUUID}, []Lost{{"r", "d1", NewUUID}}},
		"no saved UUID, io_uring":             {superblock, []string{d0, uring}, []Lost{{"r", "d1", NewUUID}}},
		"content is lost":                     {superblock, []string{d0, malloc}, []Lost{{"r", "d1", NoContent}}},
		"each RAID once":                      {superblock, []string{`{"method":"bdev_null_create","params":{"name":"d0"}}`, malloc}, []Lost{{"r", "d0", NoContent}}},
		"NVMe":                                {superblock, []string{d0, nvme, odd, other}, nil},
		"no superblock, disks without UUID":   {nil, []string{noUUID, other, plain}, nil},
		"no superblock, a disk was removed":   {nil, []string{d0, d1, lacks}, []Lost{{"p", "removed_base_bdev_1", Removed}}},
		"a superblock, a disk was removed":    {[]Raid{{"r", []string{"d0"}}}, []string{d0}, nil},
		"disks that no saved call creates":    {[]Raid{{"r", []string{"lvs0/a"}}}, []string{d0}, nil},
		"both kinds, each with its own cause": {superblock, []string{lacks, d0, noUUID}, []Lost{{"p", "removed_base_bdev_1", Removed}, {"r", "d1", NewUUID}}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []json.RawMessage
			for _, text := range c.calls {
				calls = append(calls, json.RawMessage(text))
			}
			got := Unrestorable(c.raids, calls)
			assert.Equal(t, c.want, got)
			for _, l := range got {
				assert.NotEmpty(t, l.Reason())
			}
		})
	}
}
