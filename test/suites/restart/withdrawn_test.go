package restart

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A host's access is revoked while the target has lost its configuration. After the target has
// loaded the saved file again, that host has no access, but the other hosts do.
func TestRevokedHostIsNotRestored(t *testing.T) {
	for name, c := range map[string]struct {
		withdraw string
		left     []string
	}{
		"one of two hosts": {"a", []string{"b"}},
		"all hosts":        {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriverTestbed(t, export.TCP)
			d.create()
			for _, node := range []string{"a", "b"} {
				d.ok(d.publish(t.Context(), node, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY))
			}
			d.awaitSaved()
			d.kill()
			require.True(t, d.start())
			d.fresh()
			d.call("bdev_aio_create", p{"filename": d.at("disk0"), "name": "disk0", "block_size": 4096}, nil)
			require.Empty(t, d.everything().exports)
			require.NoError(t, d.unpublish(t.Context(), c.withdraw))
			d.kill()
			d.again()
			assert.Equal(t, c.left, d.admitted(d.everything()))
		})
	}
}

// A publication or unpublication is reported as complete only after it has been saved.
func TestChangesAreSavedBeforeTheResponse(t *testing.T) {
	for _, transport := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(transport), func(t *testing.T) {
			d := newDriverTestbed(t, transport)
			d.create()
			for _, do := range []func() error{
				func() error { return d.publish(t.Context(), "a", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER) },
				func() error { return d.unpublish(t.Context(), "a") },
			} {
				d.relay.unsaved = true
				require.ErrorIs(t, do(), spdkrpc.NotSaved)
				require.ErrorIs(t, do(), spdkrpc.NotSaved, "again")
				d.relay.unsaved = false
				require.NoError(t, do())
			}
		})
	}
}
