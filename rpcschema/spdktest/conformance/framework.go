package conformance

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func (s *suite) methods(params any) (names []string) {
	s.Helper()
	s.get(&names, "rpc_get_methods", params)
	return names
}

func (s *suite) inStartup() bool {
	for _, name := range s.methods(P{"current": true}) {
		if name == "bdev_get_bdevs" {
			return false
		}
	}
	return true
}

// testStartup tests the startup state, and then ends it.
func testStartup(s *suite) {
	assert.Contains(s, s.methods(P{"current": true}), "framework_start_init")
	assert.NotContains(s, s.methods(P{"current": true}), "bdev_lvol_create")
	assert.Contains(s, s.methods(nil), "bdev_lvol_create", "the list also contains methods of other states")
	for method, params := range map[string]any{
		"bdev_get_bdevs": nil, "bdev_lvol_get_lvstores": nil, "nvmf_get_subsystems": nil, "iscsi_get_options": nil,
		"framework_get_subsystems": nil, "notify_get_types": nil, "nvmf_create_transport": P{"trtype": "TCP"},
	} {
		s.fails(wrongState, method, params)
	}
	s.fails(noMethod, "no_such_method", nil)
	s.ok("spdk_get_version", nil)

	waited := make(chan error, 1)
	go func() {
		_, err := s.call("framework_wait_init", nil)
		waited <- err
	}()
	s.ok("framework_start_init", nil)
	require.NoError(s, <-waited)
	s.fails(wrongState, "framework_start_init", nil)
	require.False(s, s.inStartup())
}

func testFramework(s *suite) {
	var v spdkrpc.FrameworkVersion
	s.get(&v, "spdk_get_version", nil)
	assert.EqualValues(s, s.release.Year, v.Fields.Major)
	assert.EqualValues(s, s.release.Month, v.Fields.Minor)

	var types []string
	s.get(&types, "notify_get_types", nil)
	assert.Subset(s, types, []string{"bdev_register", "bdev_unregister"})
	if !s.env.Validates { // see testDecoding
		s.fails(invalidParams, "notify_get_types", P{})
	}

	testNotifications(s)
	testStatistics(s)

	now := s.methods(P{"current": true})
	assert.Subset(s, s.methods(nil), now)
	assert.Equal(s, len(s.methods(P{"current": false})), len(s.methods(nil)))
	assert.NotContains(s, now, "framework_start_init")
	s.fails(invalidParams, "rpc_get_methods", P{"include_aliases": "yes"})

	s.ok("framework_wait_init", nil)
	s.fails(wrongState, "framework_start_init", nil)
	s.fails(noMethod, "no_such_method", nil)
	s.fails(noMethod, "SPDK_get_version", nil)
	s.fails(noMethod, " ", nil)

	var parts []spdkrpc.FrameworkSubsystem
	s.get(&parts, "framework_get_subsystems", nil)
	names := map[string]bool{}
	for _, p := range parts {
		names[p.Subsystem] = true
		for _, needed := range p.DependsOn {
			assert.True(s, names[needed] || needed == "", "%s starts before %s, which it depends on", p.Subsystem, needed)
		}
	}
	for _, name := range []string{"bdev", "nvmf", "iscsi", "keyring", "accel"} {
		assert.True(s, names[name] || name == "keyring" && s.before("v24.05"), "%s is missing", name)
	}
}

// testSchema checks each family of methods that the target supports. The target must have exactly
// the methods that the schema lists for the target's release.
func testSchema(s *suite) {
	have := map[string]bool{}
	for _, name := range s.methods(nil) {
		have[name] = true
	}
	for name := range have {
		m, known := rpcschema.Default().Method(name)
		if known {
			assert.True(s, m.Has(s.release), "the target has %s, but the schema lists it for %s", name, m.Window)
		}
	}
	for _, m := range rpcschema.Default().Methods() {
		if !m.Has(s.release) {
			assert.False(s, have[m.Name])
			s.fails(noMethod, m.Name, nil)
		}
	}
}

// testDecoding checks that the target rejects unknown members, missing members and members of the
// wrong type. The error code depends on the family of methods.
func testDecoding(s *suite) {
	for _, c := range []struct {
		code   int
		method string
		good   P // valid parameters, although objects with these names may not exist
		wrong  P // parameters with members of the wrong type
	}{
		{internalError, "bdev_lvol_create_lvstore", P{"bdev_name": "x", "lvs_name": "x"}, P{"bdev_name": 1, "lvs_name": nil, "cluster_sz": "1"}},
		{internalError, "bdev_lvol_rename_lvstore", P{"old_name": "x", "new_name": "y"}, P{"old_name": 1, "new_name": true}},
		{internalError, "bdev_lvol_create", P{"lvs_name": "x", "lvol_name": "x", "size_in_mib": 4}, P{"lvol_name": 5, "size_in_mib": "4", "thin_provision": "true"}},
		{internalError, "bdev_lvol_snapshot", P{"lvol_name": "x", "snapshot_name": "y"}, P{"lvol_name": 1, "snapshot_name": P{}}},
		{internalError, "bdev_lvol_resize", P{"name": "x", "size_in_mib": 4}, P{"name": 1, "size_in_mib": -1}},
		{internalError, "bdev_lvol_delete", P{"name": "x"}, P{"name": []string{"x"}}},
		{internalError, "bdev_lvol_inflate", P{"name": "x"}, P{"name": 0}},
		{internalError, "bdev_aio_create", P{"name": "x", "filename": "/nope"}, P{"filename": 1, "block_size": 4294967296, "readonly": 0}},
		{internalError, "bdev_aio_delete", P{"name": "x"}, P{"name": 1}},
		{internalError, "bdev_malloc_create", P{"num_blocks": 0, "block_size": 512}, P{"num_blocks": 1.5, "block_size": -512, "name": 7, "uuid": "no-uuid"}},
		{internalError, "bdev_set_qos_limit", P{"name": "x", "rw_ios_per_sec": 0}, P{"rw_ios_per_sec": -1, "name": 1}},
		{internalError, "bdev_passthru_delete", P{"name": "x"}, P{"name": 1}},
		{invalidParams, "nvmf_create_subsystem", P{"nqn": "x"}, P{"nqn": 1, "allow_any_host": 1, "max_namespaces": "1", "min_cntlid": 70000}},
		{invalidParams, "nvmf_delete_subsystem", P{"nqn": s.nqn("nobody")}, P{"nqn": 1}},
		{invalidParams, "nvmf_subsystem_remove_ns", P{"nqn": s.nqn("nobody"), "nsid": 1}, P{"nsid": "1"}},
		{invalidParams, "nvmf_subsystem_remove_host", P{"nqn": s.nqn("nobody"), "host": "x"}, P{"host": 1}},
		{invalidParams, "nvmf_subsystem_allow_any_host", P{"nqn": s.nqn("nobody"), "allow_any_host": true}, P{"allow_any_host": "true"}},
		{invalidParams, "iscsi_create_initiator_group", P{"tag": 1, "initiators": []string{}, "netmasks": []string{}}, P{"tag": "1", "initiators": "ANY", "netmasks": []int{1}}},
		{invalidParams, "iscsi_delete_target_node", P{"name": "x"}, P{"name": 1}},
		{invalidParams, "iscsi_delete_portal_group", P{"tag": 4711}, P{"tag": "1"}},
	} {
		with := func(name string, value any) P {
			p := P{}
			for k, v := range c.good {
				p[k] = v
			}
			p[name] = value
			return p
		}
		s.fails(c.code, c.method, with("no_such_parameter", 1))
		s.fails(c.code, c.method, P{})
		s.fails(c.code, c.method, nil)
		for name, value := range c.wrong {
			s.fails(c.code, c.method, with(name, value))
		}
		if !s.env.Validates {
			s.fails(c.code, c.method, []any{"x"})
		}
	}
	for _, method := range []string{"spdk_get_version", "framework_get_subsystems", "iscsi_get_target_nodes", "iscsi_get_portal_groups", "nvmf_get_targets"} {
		s.fails(invalidParams, method, P{"no_such_parameter": 1})
	}
	if !s.env.Validates { // SPDK treats an empty object as parameters, and the schema as none
		for _, method := range []string{"spdk_get_version", "iscsi_get_target_nodes"} {
			s.fails(invalidParams, method, P{})
		}
		s.fails(invalidValue, "bdev_lvol_get_lvstores", P{})
		s.fails(invalidValue, "bdev_lvol_get_lvols", P{})
	}
	s.ok("bdev_get_bdevs", nil)
	s.ok("nvmf_get_subsystems", nil)
}

// testParallel checks that calls on one connection do not wait for each other, and that concurrent
// calls on separate objects do not affect each other.
func testParallel(s *suite) {
	store := s.store("par")
	free := s.free(store)
	const n = 20
	type made struct {
		uuid string
		err  error
	}
	results := make(chan made, n)
	for i := range n {
		go func() {
			raw, err := s.call("bdev_lvol_create", P{"lvs_name": store, "lvol_name": string(rune('a' + i)), "size_in_mib": 4})
			results <- made{string(raw), err}
		}()
	}
	seen := map[string]bool{}
	for range n {
		r := <-results
		require.NoError(s, r.err)
		seen[r.uuid] = true
	}
	assert.Len(s, seen, n)
	assert.Equal(s, free-n, s.free(store))

	same := make(chan error, n)
	for range n {
		go func() {
			_, err := s.call("bdev_lvol_create", P{"lvs_name": store, "lvol_name": "same", "size_in_mib": 4})
			same <- err
		}()
	}
	succeeded := 0
	for range n {
		if <-same == nil {
			succeeded++
		}
	}
	assert.Equal(s, 1, succeeded, "of many identical calls that create an object, one succeeds")
	assert.Equal(s, free-n-1, s.free(store))

	slow := make(chan error, 1)
	go func() {
		_, err := s.call("bdev_get_bdevs", P{"name": s.name("never"), "timeout": 700})
		slow <- err
	}()
	for range 5 {
		s.ok("spdk_get_version", nil)
	}
	select {
	case err := <-slow:
		require.Fail(s, "the response to the slow call arrived first", "%v", err)
	default:
	}
	var e *spdkrpc.Error
	select {
	case err := <-slow:
		require.ErrorAs(s, err, &e)
		assert.Equal(s, timedOut, e.Code)
	case <-time.After(callTimeout):
		require.Fail(s, "the slow call got no response")
	}
}
