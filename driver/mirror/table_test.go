package mirror

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTablesAreReadBack(t *testing.T) {
	legs := [2]leg{{"259:0", 8192}, {"259:1", 8192}}
	for want, table := range map[string]table{
		"core 2 2048 nosync 2 259:0 8192 259:1 8192 1 handle_errors":      {legs: legs},
		"disk 2 253:1 2048 2 259:0 8192 259:1 8192 1 handle_errors":       {log: "253:1", legs: legs},
		"disk 2 253:1 2048 2 259:0 8192 253:2 0 2 handle_errors keep_log": {log: "253:1", legs: [2]leg{legs[0], {"253:2", 0}}, keepLog: true},
	} {
		assert.Equal(t, target{"mirror", 131072, want}, table.target(131072))
		got, err := parseTable(target{"mirror", 131072, want + " "})
		require.NoError(t, err)
		assert.Equal(t, table, got)
	}
}

func TestUnexpectedTablesAreRejected(t *testing.T) {
	const good = "disk 2 253:1 2048 2 259:0 8192 259:1 8192 1 handle_errors"
	for _, refused := range []target{
		{"linear", 8, good}, {"mirror", 8, ""}, {"mirror", 8, "disk"}, {"mirror", 8, "disk 9 253:1"}, {"mirror", 8, "disk -1 253:1"},
		{"mirror", 8, "disk 2 253:1 1024 2 259:0 8192 259:1 8192 1 handle_errors"},
		{"mirror", 8, "disk 2 253:1 2048 3 259:0 8192 259:1 8192 259:2 8192 1 handle_errors"},
		{"mirror", 8, "disk 2 253:1 2048 2 259:0 8192 259:1 8192"},
		{"mirror", 8, good + " more"},
		{"mirror", 8, "disk 3 253:1 2048 nosync 2 259:0 8192 259:1 8192 1 handle_errors"}, // a resume would discard the marks
		{"mirror", 8, "disk 2 253:1 2048 2 259:0 x 259:1 8192 1 handle_errors"},
		{"mirror", 8, "clustered-disk 2 253:1 2048 2 259:0 8192 259:1 8192 1 handle_errors"},
	} {
		_, err := parseTable(refused)
		assert.ErrorIs(t, err, errTable, "%v", refused)
	}
}

func TestMirrorStatusIsParsed(t *testing.T) {
	for status, want := range map[string]progress{
		"2 259:0 259:1 64/64 1 AA 1 core":         {64, 64, [2]bool{true, true}, false},
		"2 259:0 259:1 3/64 1 AD 3 disk 253:1 A":  {3, 64, [2]bool{true, false}, false},
		"2 259:0 259:1 64/64 1 DA 3 disk 253:1 D": {64, 64, [2]bool{false, true}, true},
	} {
		got, err := parseProgress(status)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		assert.Equal(t, got.alive == [2]bool{true, true} && got.synced == 64, got.complete())
	}
	for _, status := range []string{
		"", "2 259:0 259:1", "3 259:0 259:1 259:2 64/64 1 AAA 1 core", "2 259:0 259:1 64 1 AA 1 core", "2 259:0 259:1 a/64 1 AA 1 core",
		"2 259:0 259:1 64/64 1 A 1 core", "2 259:0 259:1 64/64 1 AA 3 disk", "2 259:0 259:1 64/64 1 AA 2 userspace",
	} {
		_, err := parseProgress(status)
		assert.Error(t, err, status)
	}
	assert.False(t, progress{alive: [2]bool{true, true}}.complete(), "a mirror without regions")
	assert.False(t, progress{synced: 1, total: 1, alive: [2]bool{true, true}, logFailed: true}.complete())
}

func TestInvalidVolumesAreRejected(t *testing.T) {
	good := Volume{ID: testID, Size: testSize, UUIDs: [3]string{"a", "b"}}
	good.Writer.Node, good.Writer.Generation = node, 1
	w := newWorld(t)
	o := w.plugin().Options
	_, err := New(good, o)
	require.NoError(t, err)
	for name, change := range map[string]func(v *Volume, o *Options){
		"no id":            func(v *Volume, _ *Options) { v.ID = "" },
		"a path":           func(v *Volume, _ *Options) { v.ID = "a/b" },
		"small":            func(v *Volume, _ *Options) { v.Size = RegionBytes - superblockBytes },
		"not whole blocks": func(v *Volume, _ *Options) { v.Size += 512 },
		"large":            func(v *Volume, _ *Options) { v.Size = (maxRegions + 1) * RegionBytes },
		"no node":          func(v *Volume, _ *Options) { v.Writer.Node = "" },
		"no generation":    func(v *Volume, _ *Options) { v.Writer.Generation = 0 },
		"no witness":       func(_ *Volume, o *Options) { o.Witness = nil },
	} {
		v, o := good, o
		change(&v, &o)
		_, err := New(v, o)
		assert.ErrorIs(t, err, ErrInvalid, name)
	}
}
