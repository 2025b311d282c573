package changes

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// refusal returns the code and the text of the proxy's refusal to list a snapshot's changes.
func (w *proxy) refusal(t *testing.T, snapshot string) (code int, text string) {
	var rpc *spdkrpc.Error
	err := w.call("spdkgate_lvol_changes", p{"snapshot": snapshot}, nil)
	require.ErrorAs(t, err, &rpc)
	return rpc.Code, rpc.Message
}

// SPDK fails to rename a snapshot, but still changes its alias. The proxy's error contains the call
// that restores the alias.
func TestFailedSnapshotRenameNamesTheRemedy(t *testing.T) {
	w := newTestbed(t, "aio", *seed)
	w.prepare()
	s := w.list()[0]
	_, err := w.changes(s, nil)
	require.NoError(t, err)
	var list []spdkrpc.BdevInfo
	w.must("bdev_get_bdevs", p{"name": s.uuid}, &list)
	name := list[0].Aliases[0][len("lvs0/"):]
	require.Error(t, w.target.call("bdev_lvol_rename", p{"old_name": s.uuid, "new_name": "other"}, nil))
	code, text := w.proxy.refusal(t, s.uuid)
	assert.Equal(t, -74, code)
	assert.Contains(t, text, "bdev_lvol_rename old_name="+s.uuid+" new_name="+name)
	t.Log(text)
	w.must("bdev_lvol_rename", p{"old_name": s.uuid, "new_name": name}, nil)
	_, err = w.changes(s, nil)
	require.NoError(t, err)
}

func TestLargerMetadataPagesAreRejected(t *testing.T) {
	image := newImage(t, 256*mib)
	g := newTarget(t, func(g *target) { g.useFile(image) })
	err := g.call("bdev_lvol_create_lvstore", p{"bdev_name": disk, "lvs_name": "lvs0", "md_page_size": 8192}, nil)
	var rpc *spdkrpc.Error
	if errors.As(err, &rpc) && rpc.Code == -32603 {
		t.Skip("this release has no parameter md_page_size")
	}
	require.NoError(t, err)
	var volume, snapshot string
	g.must("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": "v", "size_in_mib": 8, "thin_provision": true}, &volume)
	g.must("bdev_lvol_snapshot", p{"lvol_name": volume, "snapshot_name": "s"}, &snapshot)
	code, text := startProxy(g).refusal(t, snapshot)
	assert.Equal(t, -95, code)
	t.Log(text)
}
