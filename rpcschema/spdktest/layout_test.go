package spdktest

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exported reads the layout as a connector does. It returns the admitted hosts, and the volumes'
// files by UUID; both are nil if nothing is exported under that name.
func (b *bench) exported(name string) (hosts []string, volumes map[string]string) {
	b.Helper()
	dir := filepath.Join(b.target.opts.DataDir, "exports", url.PathEscape(name))
	text, err := os.ReadFile(filepath.Join(dir, "hosts"))
	if os.IsNotExist(err) {
		require.NoDirExists(b, dir)
		return nil, nil
	}
	require.NoError(b, err)
	entries, err := os.ReadDir(filepath.Join(dir, "namespaces"))
	require.NoError(b, err)
	volumes = map[string]string{}
	for _, entry := range entries {
		volumes[entry.Name()], err = os.Readlink(filepath.Join(dir, "namespaces", entry.Name()))
		require.NoError(b, err)
	}
	return strings.Fields(string(text)), volumes
}

func (b *bench) exports(name string, hosts []string, volumes map[string]string) {
	b.Helper()
	gotHosts, gotVolumes := b.exported(name)
	assert.ElementsMatch(b, hosts, gotHosts)
	assert.Equal(b, volumes, gotVolumes)
}

func TestNVMeExportsAppearInTheDataDirectory(t *testing.T) {
	b := start(t, Options{DataDir: t.TempDir()})
	b.store()
	v, w := b.lvol("v", 8), b.lvol("w", 8)
	one := map[string]string{v: b.file(v)}
	b.ok("nvmf_create_transport", p{"trtype": "TCP"})
	b.ok("nvmf_create_subsystem", p{"nqn": nqn})
	b.ok("nvmf_subsystem_add_ns", p{"nqn": nqn, "namespace": p{"bdev_name": v}})
	b.ok("nvmf_subsystem_add_host", p{"nqn": nqn, "host": hostNQN})
	b.exports(nqn, nil, nil)

	b.ok("nvmf_subsystem_add_listener", p{"nqn": nqn, "listen_address": tcp("4420")})
	b.exports(nqn, []string{hostNQN}, one)
	b.ok("nvmf_subsystem_add_host", p{"nqn": nqn, "host": nqn})
	b.exports(nqn, []string{hostNQN, nqn}, one)
	b.ok("nvmf_subsystem_allow_any_host", p{"nqn": nqn, "allow_any_host": true})
	b.exports(nqn, []string{"*"}, one)
	b.ok("nvmf_subsystem_allow_any_host", p{"nqn": nqn, "allow_any_host": false})
	b.ok("nvmf_subsystem_remove_host", p{"nqn": nqn, "host": nqn})
	b.ok("nvmf_subsystem_remove_host", p{"nqn": nqn, "host": hostNQN})
	b.exports(nqn, []string{}, one)

	const other = "22222222-2222-4222-8222-222222222222"
	b.ok("nvmf_subsystem_add_ns", p{"nqn": nqn, "namespace": p{"bdev_name": w, "uuid": other}})
	b.exports(nqn, []string{}, map[string]string{v: b.file(v), other: b.file(w)})
	b.ok("nvmf_subsystem_remove_ns", p{"nqn": nqn, "nsid": 1})
	b.exports(nqn, []string{}, map[string]string{other: b.file(w)})
	b.ok("bdev_lvol_delete", p{"name": w})
	b.exports(nqn, []string{}, map[string]string{})
	b.ok("nvmf_subsystem_add_ns", p{"nqn": nqn, "namespace": p{"bdev_name": v, "no_auto_visible": true}})
	b.exports(nqn, []string{}, map[string]string{})
	b.ok("nvmf_subsystem_remove_ns", p{"nqn": nqn, "nsid": 1})
	b.ok("bdev_malloc_create", p{"name": "m", "num_blocks": 8192, "block_size": 4096})
	b.ok("nvmf_subsystem_add_ns", p{"nqn": nqn, "namespace": p{"bdev_name": "m"}})
	b.exports(nqn, []string{}, map[string]string{})

	b.ok("nvmf_subsystem_add_listener", p{"nqn": nqn, "listen_address": tcp("4421")})
	b.ok("nvmf_subsystem_remove_listener", p{"nqn": nqn, "listen_address": tcp("4420")})
	b.exports(nqn, []string{}, map[string]string{})
	b.ok("nvmf_subsystem_remove_listener", p{"nqn": nqn, "listen_address": tcp("4421")})
	b.exports(nqn, nil, nil)
	b.ok("nvmf_subsystem_add_listener", p{"nqn": nqn, "listen_address": tcp("4420")})
	b.ok("nvmf_delete_subsystem", p{"nqn": nqn})
	b.exports(nqn, nil, nil)

	b.ok("nvmf_create_subsystem", p{"nqn": nqn, "allow_any_host": true})
	b.ok("nvmf_subsystem_add_listener", p{"nqn": nqn, "listen_address": tcp("4420")})
	b.ok("nvmf_subsystem_add_ns", p{"nqn": nqn, "namespace": p{"bdev_name": v}})
	b.exports(nqn, []string{"*"}, one)
	b.ok("bdev_aio_delete", p{"name": "aio"}) // this also removes the lvstore
	b.exports(nqn, []string{"*"}, map[string]string{})
	b.restart()
	b.exports(nqn, nil, nil)
}

func TestISCSIExportsAppearInTheDataDirectory(t *testing.T) {
	b := start(t, Options{DataDir: t.TempDir()})
	b.store()
	v, w := b.lvol("v", 8), b.lvol("w", 8)
	b.exportISCSI(v, "iqn.2026-11.io.spdkgate:a", "!iqn.2026-11.io.spdkgate:b")
	b.exports(iqn, []string{"iqn.2026-11.io.spdkgate:a", "!iqn.2026-11.io.spdkgate:b"}, map[string]string{v: b.file(v)})
	b.ok("iscsi_initiator_group_add_initiators", p{"tag": 1, "initiators": []string{"iqn.2026-11.io.spdkgate:c"}})
	b.ok("iscsi_initiator_group_remove_initiators", p{"tag": 1, "initiators": []string{"!iqn.2026-11.io.spdkgate:b"}})
	b.exports(iqn, []string{"iqn.2026-11.io.spdkgate:a", "iqn.2026-11.io.spdkgate:c"}, map[string]string{v: b.file(v)})
	b.ok("iscsi_target_node_add_lun", p{"name": iqn, "bdev_name": w})
	b.exports(iqn, []string{"iqn.2026-11.io.spdkgate:a", "iqn.2026-11.io.spdkgate:c"}, map[string]string{v: b.file(v), w: b.file(w)})
	b.ok("bdev_lvol_delete", p{"name": v})
	b.ok("iscsi_create_initiator_group", p{"tag": 2, "initiators": []string{"ANY"}, "netmasks": []string{"ANY"}})
	b.ok("iscsi_target_node_add_pg_ig_maps", p{"name": iqn, "pg_ig_maps": []p{{"pg_tag": 1, "ig_tag": 2}}})
	b.exports(iqn, []string{"iqn.2026-11.io.spdkgate:a", "iqn.2026-11.io.spdkgate:c", "*"}, map[string]string{w: b.file(w)})
	b.ok("iscsi_delete_initiator_group", p{"tag": 2})
	b.exports(iqn, []string{"iqn.2026-11.io.spdkgate:a", "iqn.2026-11.io.spdkgate:c"}, map[string]string{w: b.file(w)})
	b.ok("iscsi_delete_portal_group", p{"tag": 1})
	b.exports(iqn, nil, nil)

	b.ok("iscsi_create_portal_group", p{"tag": 1, "portals": []p{{"host": "127.0.0.1", "port": "3260"}}})
	b.ok("iscsi_target_node_add_pg_ig_maps", p{"name": iqn, "pg_ig_maps": []p{{"pg_tag": 1, "ig_tag": 1}}})
	b.exports(iqn, []string{"iqn.2026-11.io.spdkgate:a", "iqn.2026-11.io.spdkgate:c"}, map[string]string{w: b.file(w)})
	b.ok("iscsi_delete_target_node", p{"name": iqn})
	b.exports(iqn, nil, nil)
}
