package restart

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A host is withdrawn while the target has lost its configuration. When the target loads the saved file again, that host is not
// admitted, and the others are.
func TestWithdrawnWhileTheTargetIsEmpty(t *testing.T) {
	for name, c := range map[string]struct {
		withdraw func(d *driverWorld) *export.Host
		left     []string
	}{
		"one of two hosts": {func(d *driverWorld) *export.Host { return &d.hostA }, []string{"b"}},
		"all hosts":        {func(*driverWorld) *export.Host { return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriverWorld(t, export.TCP)
			d.create()
			d.publish()
			_, err := d.Share(t.Context(), d.v.UUID, d.hostB)
			require.NoError(t, err)
			d.settled()
			d.kill()
			require.True(t, d.start())
			d.fresh()
			d.call("bdev_aio_create", p{"filename": d.at("disk0"), "name": "disk0", "block_size": 4096}, nil)
			require.Empty(t, d.everything().exports)
			require.NoError(t, d.Unexport(t.Context(), d.v.UUID, c.withdraw(d)))
			d.kill()
			d.again()
			assert.Equal(t, c.left, d.admitted(d.everything()))
		})
	}
}

// Neither a publication nor an unpublication is reported as done while it is not saved.
func TestNothingIsDoneBeforeItIsSaved(t *testing.T) {
	for _, transport := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(transport), func(t *testing.T) {
			d := newDriverWorld(t, transport)
			d.create()
			for _, do := range []func() error{
				func() error { _, err := d.admit(t.Context(), d.v.UUID, d.hostA); return err },
				func() error { return d.Unexport(t.Context(), d.v.UUID, &d.hostA) },
			} {
				d.deadly.unsaved = true
				require.ErrorIs(t, do(), spdkrpc.NotSaved)
				require.ErrorIs(t, do(), spdkrpc.NotSaved, "again")
				d.deadly.unsaved = false
				require.NoError(t, do())
			}
		})
	}
}
