package persist

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	diskUUID   = "00000000-0000-4000-8000-000000000001"
	volumeUUID = "00000000-0000-4000-8000-000000000002"
	ptUUID     = "00000000-0000-4000-8000-000000000003"
	raidUUID   = "00000000-0000-4000-8000-000000000004"
)

// listOf is a list of bdevs with a clone of each parent.
func listOf(parents ...string) string {
	list := `[{"name":"disk","uuid":"` + diskUUID + `","driver_specific":{"aio":{"filename":"/dev/sda"}}},` +
		`{"name":"` + volumeUUID + `","uuid":"` + volumeUUID + `","driver_specific":{"lvol":{"base_bdev":"disk"}}},` +
		`{"name":"pt","uuid":"` + ptUUID + `","driver_specific":{"passthru":{"name":"pt","base_bdev_name":"` + volumeUUID + `"}}},` +
		`{"name":"raid","uuid":"` + raidUUID + `","driver_specific":{"raid":{"base_bdevs_list":[{"name":"disk"},{"name":null}]}}},` +
		`{"name":"raid-pt","uuid":"","driver_specific":{"raid":{"base_bdevs_list":[{"name":"disk"},{"name":"pt"}]}}}`
	for _, parent := range parents {
		list += `,{"name":"clone","uuid":"clone","driver_specific":{"lvol":{"base_bdev":"disk","esnap_clone":true,"external_snapshot_name":"` + parent + `"}}}`
	}
	return list + "]"
}

func TestExternalParents(t *testing.T) {
	for name, c := range map[string]struct {
		list string
		want []string
	}{
		"no clone":                   {listOf(), nil},
		"a disk":                     {listOf(diskUUID, diskUUID), []string{"disk"}},
		"a RAID of disks":            {listOf(raidUUID), []string{"raid"}},
		"a volume":                   {listOf(volumeUUID), nil},
		"a bdev on a volume":         {listOf(ptUUID), nil},
		"a RAID on such a bdev":      {listOf("raid-pt"), nil},
		"a bdev that is missing":     {listOf("00000000-0000-4000-8000-000000000005"), nil},
		"a bdev that names itself":   {`[{"name":"a","uuid":"u","driver_specific":{"b":{"name":"a"}}},{"name":"c","uuid":"c","driver_specific":{"lvol":{"external_snapshot_name":"u"}}}]`, []string{"a"}},
		"two bdevs under each other": {`[{"name":"a","uuid":"u","driver_specific":{"x":{"base_bdev":"b"}}},{"name":"b","uuid":"w","driver_specific":{"x":{"base_bdev":"a"}}},{"name":"c","uuid":"c","driver_specific":{"lvol":{"external_snapshot_name":"u"}}}]`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := listExternalParents(t.Context(), func(context.Context, string, map[string]any) (json.RawMessage, error) {
				return json.RawMessage(c.list), nil
			})
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

// The long list is read once for a process, after a call that can have changed the parents, and
// after a failure.
func TestExternalParentsAreRemembered(t *testing.T) {
	var e externalParents
	asked, answer := 0, listOf(diskUUID)
	var fail error
	of := func(process string) []string {
		names, err := e.of(t.Context(), Target{Process: process, Ask: func(_ context.Context, method string, _ map[string]any) (json.RawMessage, error) {
			assert.Equal(t, "bdev_get_bdevs", method)
			asked++
			return json.RawMessage(answer), fail
		}})
		require.ErrorIs(t, err, fail)
		return names
	}
	assert.Equal(t, []string{"disk"}, of("first"))
	assert.Equal(t, []string{"disk"}, of("first"))
	e.note("bdev_lvol_create")
	of("first")
	assert.Equal(t, 1, asked)
	answer = listOf(raidUUID)
	for i, method := range changesExternal {
		e.note(method)
		assert.Equal(t, []string{"raid"}, of("first"), method)
		assert.Equal(t, 2+i, asked)
	}
	answer = listOf()
	assert.Empty(t, of("second"))
	fail = errors.New("timeout")
	of("third")
	fail, answer = nil, listOf(diskUUID)
	assert.Equal(t, []string{"disk"}, of("third"))
	answer = "{}"
	_, err := listExternalParents(t.Context(), func(context.Context, string, map[string]any) (json.RawMessage, error) {
		return json.RawMessage(answer), nil
	})
	require.ErrorContains(t, err, "bdev_get_bdevs")
}

// A call during the reading makes the next reading ask again.
func TestExternalParentsThatChangeWhileTheyAreRead(t *testing.T) {
	var e externalParents
	asked := 0
	ask := func(context.Context, string, map[string]any) (json.RawMessage, error) {
		if asked++; asked == 1 {
			e.note("bdev_lvol_clone_bdev")
			return json.RawMessage(listOf()), nil
		}
		return json.RawMessage(listOf(diskUUID)), nil
	}
	for _, want := range [][]string{nil, {"disk"}, {"disk"}} {
		names, err := e.of(t.Context(), Target{Process: "p", Ask: ask})
		require.NoError(t, err)
		assert.Equal(t, want, names)
	}
	assert.Equal(t, 2, asked)
}
