package persist

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// SPDK saves histograms without the options that make them count I/O on channels that are opened
// later, and enables them before it has found the volumes. The saver adds the options and a wait
// for the volume.
func TestHistogramsCountAllIOAfterARestart(t *testing.T) {
	const saved = `[{"method":"bdev_enable_histogram","params":{"name":"v","enable":true,"opc":"read"}},{"method":"bdev_aio_create","params":{"name":"a"}}]`
	for release, want := range map[string]map[string]any{
		"v25.01": {"name": "v", "enable": true, "opc": "read"},
		"v26.05": {"name": "v", "enable": true, "opc": "read", "min_nsec": "0", "max_nsec": "18446744073709551615"},
	} {
		s, err := subsystem("bdev", []byte(saved), rpcschema.MustRelease(release))
		require.NoError(t, err)
		require.Len(t, s.Calls, 3)
		var calls []entry
		for _, c := range s.Calls {
			e, err := entryOf(c)
			require.NoError(t, err)
			calls = append(calls, e)
		}
		assert.Equal(t, "bdev_aio_create", calls[0].Method)
		assert.Equal(t, "bdev_get_bdevs", calls[1].Method)
		assert.Equal(t, "v", calls[1].Params["name"], "the file waits for the volume first")
		assert.Equal(t, "bdev_enable_histogram", calls[2].Method)
		assert.Len(t, calls[2].Params, len(want))
		for name, v := range want {
			assert.EqualValues(t, v, calls[2].Params[name], "%s %s", release, name)
		}
		require.NoError(t, rpcschema.Default().ValidateParams(calls[2].Method, calls[2].Params, rpcschema.MustRelease(release)))

		before, err := parse([]byte(`{"spdkgate":{"release":"` + release + `"},"subsystems":[{"subsystem":"bdev","config":` + saved + `}]}`))
		require.NoError(t, err)
		now := &Configuration{Saved: Origin{Release: release}, Subsystems: []Subsystem{{Name: "bdev", Calls: s.Calls}}}
		assert.Empty(t, compare(rpcschema.Default(), before, now).missing(before, now), "calls saved by an earlier proxy do not count as missing")
	}

	own := `[{"method":"bdev_enable_histogram","params":{"name":"v","enable":true,"max_nsec":5}}]`
	s, err := subsystem("bdev", []byte(own), rpcschema.MustRelease("v26.09"))
	require.NoError(t, err)
	assert.Contains(t, string(s.Calls[1]), `"max_nsec":5}`, "options saved by a later release are kept")
}
