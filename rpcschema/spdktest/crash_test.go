package spdktest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	nqn     = "nqn.2026-11.io.spdkgate:test"
	hostNQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111"
	iqn     = "iqn.2026-11.io.spdkgate:test"
)

func tcp(port string) p {
	return p{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port}
}

// export exports a bdev to one host as namespace 1.
func (b *bench) export(bdev string) {
	b.Helper()
	b.ok("nvmf_create_transport", p{"trtype": "TCP"})
	b.ok("nvmf_create_subsystem", p{"nqn": nqn})
	b.ok("nvmf_subsystem_add_host", p{"nqn": nqn, "host": hostNQN})
	b.ok("nvmf_subsystem_add_ns", p{"nqn": nqn, "namespace": p{"bdev_name": bdev}})
	b.ok("nvmf_subsystem_add_listener", p{"nqn": nqn, "listen_address": tcp("4420")})
}

// exportISCSI exports a bdev to the given initiators as LUN 0.
func (b *bench) exportISCSI(bdev string, initiators ...string) {
	b.Helper()
	b.ok("iscsi_create_portal_group", p{"tag": 1, "portals": []p{{"host": "127.0.0.1", "port": "3260"}}})
	b.ok("iscsi_create_initiator_group", p{"tag": 1, "initiators": initiators, "netmasks": []string{"ANY"}})
	b.ok("iscsi_create_target_node", p{
		"name": iqn, "alias_name": "a", "queue_depth": 8, "pg_ig_maps": []p{{"pg_tag": 1, "ig_tag": 1}}, "luns": []p{{"bdev_name": bdev, "lun_id": 0}},
	})
}

// TestOnlyMediaSurviveACrash checks that after a crash, only objects stored on media remain.
func TestOnlyMediaSurviveACrash(t *testing.T) {
	for name, dataDir := range map[string]string{"in memory": "", "with data": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			b := start(t, Options{DataDir: dataDir})
			path := b.store()
			volume := b.lvol("v", 10)
			snapshot := b.text("bdev_lvol_snapshot", p{"lvol_name": "lvs/v", "snapshot_name": "s"})
			clone := b.text("bdev_lvol_clone", p{"snapshot_name": "lvs/s", "clone_name": "c"})
			before := []spdkrpc.BdevInfo{b.bdev(volume), b.bdev(snapshot), b.bdev(clone)}
			b.ok("bdev_malloc_create", p{"name": "m", "num_blocks": 16384, "block_size": 4096})
			b.ok("bdev_lvol_create_lvstore", p{"bdev_name": "m", "lvs_name": "fleeting"})
			b.text("bdev_lvol_create", p{"lvs_name": "fleeting", "lvol_name": "f", "size_in_mib": 4})
			b.ok("bdev_set_qos_limit", p{"name": volume, "rw_ios_per_sec": 1000})
			b.ok("accel_crypto_key_create", p{"name": "k", "cipher": "AES_XTS", "key": "00112233445566778899aabbccddeeff", "key2": "ffeeddccbbaa99887766554433221100"})
			b.ok("keyring_file_add_key", p{"name": "file", "path": b.disk(1)})
			b.export(volume)
			b.exportISCSI(clone, "ANY")

			b.target.Crash()
			b.isDown()
			require.FileExists(t, b.target.Socket(), "a real crash also leaves the socket's file behind")
			_, err := net.Dial("unix", b.target.Socket())
			require.Error(t, err)
			b.target.Crash()
			b.restart()

			for method, member := range map[string]string{
				"bdev_get_bdevs": "name", "bdev_lvol_get_lvstores": "name", "bdev_lvol_get_lvols": "name", "nvmf_get_transports": "trtype",
				"iscsi_get_portal_groups": "tag", "iscsi_get_initiator_groups": "tag", "iscsi_get_target_nodes": "name", "accel_crypto_keys_get": "name", "keyring_get_keys": "name",
			} {
				assert.Empty(t, b.names(method, member), method)
			}
			assert.Equal(t, []string{rpcschema.DiscoveryNQN}, b.names("nvmf_get_subsystems", "nqn"))

			b.aio(path)
			assert.Equal(t, []string{"lvs"}, b.names("bdev_lvol_get_lvstores", "name"))
			assert.Equal(t, before, []spdkrpc.BdevInfo{b.bdev(volume), b.bdev(snapshot), b.bdev(clone)}, "without their limits")
			b.ok("bdev_malloc_create", p{"name": "m", "num_blocks": 16384, "block_size": 4096})
			assert.Equal(t, []string{"lvs"}, b.names("bdev_lvol_get_lvstores", "name"))
			b.export(volume)
		})
	}
}

// TestLvstoreStaysOnItsFile checks that an lvstore is found again on its file under any bdev name,
// and that it is lost if the beginning of the file is overwritten.
func TestLvstoreStaysOnItsFile(t *testing.T) {
	b := start(t, Options{})
	path := b.store()
	volume := b.lvol("v", 10)
	b.ok("bdev_aio_delete", p{"name": "aio"})
	assert.Empty(t, b.names("bdev_lvol_get_lvstores", "name"))
	b.ok("bdev_aio_create", p{"name": "other", "filename": path, "block_size": 512, "readonly": true})
	assert.Empty(t, b.names("bdev_lvol_get_lvstores", "name"))
	b.ok("bdev_aio_delete", p{"name": "other"})
	b.ok("bdev_aio_create", p{"name": "other", "filename": path, "block_size": 512})
	assert.Equal(t, volume, b.bdev("lvs/v").UUID)
	b.ok("bdev_aio_delete", p{"name": "other"})

	copied := path + ".moved"
	require.NoError(t, os.Rename(path, copied))
	b.aio(copied)
	assert.Equal(t, volume, b.bdev("lvs/v").UUID)
	b.ok("bdev_aio_delete", p{"name": "aio"})

	f, err := os.OpenFile(copied, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write(make([]byte, 4096))
	require.NoError(t, errors.Join(err, f.Close()))
	b.aio(copied)
	assert.Empty(t, b.names("bdev_lvol_get_lvstores", "name"))
	b.ok("bdev_lvol_create_lvstore", p{"bdev_name": "aio", "lvs_name": "lvs"})
}

// TestConfirmedVolumesSurviveACrash checks that callers get an error that indicates the crash, and
// that volumes whose creation was confirmed exist afterward.
func TestConfirmedVolumesSurviveACrash(t *testing.T) {
	b := start(t, Options{Release: rpcschema.MustRelease("v24.01"), DataDir: t.TempDir()})
	path := b.store()
	b.target.Inject(Fault{Skip: 150, Do: Crash})
	var mu sync.Mutex
	confirmed := map[string]bool{}
	var callers sync.WaitGroup
	for i := range 8 {
		client := spdkrpc.NewSocket(b.target.Socket())
		t.Cleanup(func() { _ = client.Close() })
		callers.Go(func() {
			for j := 0; ; j++ {
				name := fmt.Sprintf("v%d-%d", i, j)
				err := client.Call(t.Context(), "bdev_lvol_create", p{"lvs_name": "lvs", "lvol_name": name, "size_in_mib": 1, "thin_provision": true}, nil)
				if err != nil {
					assert.True(t, errors.Is(err, spdkrpc.OutcomeUnknown) || errors.Is(err, spdkrpc.Unreachable), "%v", err)
					return
				}
				mu.Lock()
				confirmed[name] = true
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	b.restart()
	b.aio(path)
	var lvols []spdkrpc.BdevInfo
	require.NoError(t, b.call("bdev_get_bdevs", nil, &lvols))
	there := map[string]bool{}
	for _, l := range lvols {
		for _, alias := range l.Aliases {
			there[alias] = true
		}
	}
	require.GreaterOrEqual(t, len(confirmed), 140)
	for name := range confirmed {
		assert.True(t, there["lvs/"+name], name)
	}
	assert.LessOrEqual(t, len(lvols)-1-len(confirmed), 8, "at most one for each caller was not confirmed")
}
