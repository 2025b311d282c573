package conformance

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// config returns the result of framework_get_config. It checks each call in the result against the
// schema.
func (s *suite) config(subsystem string) (calls []spdkrpc.FrameworkConfigCall) {
	s.Helper()
	s.get(&calls, "framework_get_config", P{"name": subsystem})
	for _, c := range calls {
		s.replayable(c)
	}
	return calls
}

func (s *suite) replayable(c spdkrpc.FrameworkConfigCall) {
	s.Helper()
	text, err := jsonrpc.Marshal(c.Params)
	require.NoError(s, err)
	value, err := jsonrpc.DecodeValue(text, jsonrpc.Limits{})
	require.NoError(s, err)
	params, _ := value.(map[string]any)
	require.NoError(s, rpcschema.Default().ValidateParams(c.Method, params, s.release), "%s %s", c.Method, text)
}

// rebuilt checks that a subsystem's configuration contains calls of exactly the given methods that
// mention one of marks. It then calls unmake to remove the objects, and checks that the calls
// recreate them.
func (s *suite) rebuilt(subsystem string, marks []string, methods []string, look func() any, unmake func()) {
	s.Helper()
	var ours []spdkrpc.FrameworkConfigCall
	var told []string
	for _, c := range s.config(subsystem) {
		text, err := json.Marshal(c.Params)
		require.NoError(s, err)
		if slices.ContainsFunc(marks, func(mark string) bool { return bytes.Contains(text, []byte(mark)) }) {
			ours, told = append(ours, c), append(told, c.Method)
		}
	}
	require.ElementsMatch(s, methods, told)
	before := look()
	unmake()
	for _, c := range ours {
		_, err := s.call(c.Method, c.Params)
		require.NoError(s, err, "%s %s", c.Method, c.Params)
	}
	assert.Equal(s, before, look())
}

func testConfig(s *suite) {
	s.fails(invalidParams, "framework_get_config", nil)
	s.fails(invalidParams, "framework_get_config", P{"name": s.name("nothing")})
	s.fails(invalidParams, "framework_get_config", P{"name": ""})
	raw, err := s.call("framework_get_config", P{"name": "scsi"})
	require.NoError(s, err)
	assert.Equal(s, "null", string(raw))
	for subsystem, first := range map[string]string{
		"scheduler": "framework_set_scheduler", "accel": "accel_set_options", "bdev": "bdev_set_options", "nvmf": "nvmf_set_config", "iscsi": "iscsi_set_options",
	} {
		calls := s.config(subsystem)
		require.NotEmpty(s, calls, subsystem)
		assert.Equal(s, first, calls[0].Method)
	}
	bdevs := s.config("bdev")
	assert.Equal(s, "bdev_wait_for_examine", bdevs[len(bdevs)-1].Method)
	s.group("bdev", testBdevConfig)
	s.group("nvmf", testNvmfConfig)
	s.group("iscsi", testIscsiConfig)
	s.group("keyring", testKeyringConfig)
	if !s.before("v26.05") {
		s.group("batches", testConfigBatches)
	}
}

func testBdevConfig(s *suite) {
	memory := s.malloc("m", 16)
	null, aio := s.name("n"), s.name("a")
	s.undo("bdev_null_delete", P{"name": null})
	s.ok("bdev_null_create", P{"name": null, "num_blocks": 1000, "block_size": 512})
	s.undo("bdev_aio_delete", P{"name": aio})
	s.ok("bdev_aio_create", P{"name": aio, "filename": s.file(8 << 20), "block_size": 512, "readonly": true})
	front := s.name("p")
	s.undo("bdev_passthru_delete", P{"name": front})
	s.ok("bdev_passthru_create", P{"base_bdev_name": memory, "name": front})
	s.ok("bdev_set_qos_limit", P{"name": null, "rw_ios_per_sec": 5000, "r_mbytes_per_sec": 7})
	s.rebuilt("bdev", []string{s.prefix},
		[]string{"bdev_malloc_create", "bdev_null_create", "bdev_aio_create", "bdev_passthru_create", "bdev_set_qos_limit"},
		func() any {
			var all []spdkrpc.BdevInfo
			for _, name := range []string{memory, null, aio, front} {
				info := s.bdev(name)
				if name == aio && s.before("v24.05") { // the UUID is different each time
					info.UUID, info.Aliases = "", nil
				}
				all = append(all, info)
			}
			return all
		},
		func() {
			s.ok("bdev_passthru_delete", P{"name": front})
			s.ok("bdev_aio_delete", P{"name": aio})
			s.ok("bdev_null_delete", P{"name": null})
			s.ok("bdev_malloc_delete", P{"name": memory})
		})
}

func testNvmfConfig(s *suite) {
	s.transport()
	memory := s.malloc("m", 16)
	nqn := s.subsystemWith("config", P{"serial_number": "S", "model_number": "M", "max_namespaces": 9, "ana_reporting": true, "min_cntlid": 7, "max_cntlid": 70})
	s.ok("nvmf_subsystem_add_host", P{"nqn": nqn, "host": s.nqn("host")})
	s.get(nil, "nvmf_subsystem_add_ns", P{"nqn": nqn, "namespace": P{"bdev_name": memory, "nsid": 3, "anagrpid": 5, "eui64": "0102030405060708"}})
	s.ok("nvmf_subsystem_add_listener", P{"nqn": nqn, "listen_address": tcp(s.port())})
	s.rebuilt("nvmf", []string{s.prefix},
		[]string{"nvmf_create_subsystem", "nvmf_subsystem_add_host", "nvmf_subsystem_add_ns", "nvmf_subsystem_add_listener"},
		func() any { return s.describe(nqn) },
		func() { s.ok("nvmf_delete_subsystem", P{"nqn": nqn}) })
}

func testIscsiConfig(s *suite) {
	memory := s.malloc("m", 16)
	pg, ig := s.portalGroup(), s.initiatorGroup("iqn.2026-11.io.spdkgate:host", "!iqn.2026-11.io.spdkgate:not")
	auth := s.tag()
	s.undo("iscsi_delete_auth_group", P{"tag": auth})
	s.ok("iscsi_create_auth_group", P{"tag": auth, "secrets": []P{{"user": "u", "secret": "secret of u", "muser": "m", "msecret": "secret of m"}}})
	node := "iqn.2026-11.io.spdkgate:" + s.prefix
	s.undo("iscsi_delete_target_node", P{"name": node})
	s.ok("iscsi_create_target_node", P{
		"name": node, "alias_name": "alias", "queue_depth": 16, "pg_ig_maps": []P{{"pg_tag": pg, "ig_tag": ig}},
		"luns": []P{{"bdev_name": memory, "lun_id": 0}}, "require_chap": true, "chap_group": auth, "data_digest": true,
	})
	s.rebuilt("iscsi", []string{s.prefix, strconv.Itoa(pg), strconv.Itoa(ig), strconv.Itoa(auth)},
		[]string{"iscsi_create_portal_group", "iscsi_create_initiator_group", "iscsi_create_target_node", "iscsi_create_auth_group"},
		func() any { return s.targetNode(node) },
		func() {
			s.ok("iscsi_delete_target_node", P{"name": node})
			s.ok("iscsi_delete_auth_group", P{"tag": auth})
			s.ok("iscsi_delete_initiator_group", P{"tag": ig})
			s.ok("iscsi_delete_portal_group", P{"tag": pg})
		})
}

func testKeyringConfig(s *suite) {
	if s.before("v24.05") {
		s.fails(invalidParams, "framework_get_config", P{"name": "keyring"})
		return
	}
	name := s.name("key")
	path := s.secret("key", "secret", 0o600)
	s.undo("keyring_file_remove_key", P{"name": name})
	s.ok("keyring_file_add_key", P{"name": name, "path": path})
	s.rebuilt("keyring", []string{s.prefix}, []string{"keyring_file_add_key"},
		func() any { return nil },
		func() { s.ok("keyring_file_remove_key", P{"name": name}) })
}

// testConfigBatches checks that a configuration with many bdevs may contain batches of calls.
func testConfigBatches(s *suite) {
	s.malloc("a", 4)
	s.malloc("b", 4)
	var entries []spdkrpc.FrameworkConfigEntry
	s.get(&entries, "framework_get_config", P{"name": "bdev", "with_batches": true})
	found := 0
	for _, entry := range entries {
		for _, c := range entry.Array {
			s.replayable(c)
			if strings.Contains(string(c.Params["name"]), s.prefix) {
				found++
			}
		}
	}
	assert.Equal(s, 2, found)
}
