package conformance

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func testListeners(s *suite) {
	s.transport()
	nqn, other := s.subsystem("a"), s.subsystem("b")
	p1, p2, p3 := s.port(), s.port(), s.port()
	at := func(nqn string, address P) P { return P{"nqn": nqn, "listen_address": address} }
	addresses := func(nqn string) (ports []string) {
		s.Helper()
		for _, a := range s.describe(nqn).ListenAddresses {
			assert.Equal(s, "TCP", a.Trtype)
			assert.EqualValues(s, "IPv4", a.Adrfam)
			assert.Equal(s, "127.0.0.1", a.Traddr)
			ports = append(ports, a.Trsvcid)
		}
		return ports
	}
	s.ok("nvmf_subsystem_add_listener", at(nqn, tcp(p1)))
	if s.before("v24.05") {
		s.ok("nvmf_subsystem_add_listener", at(nqn, tcp(p1)))
	} else {
		s.fails(invalidParams, "nvmf_subsystem_add_listener", at(nqn, tcp(p1)))
	}
	assert.Equal(s, []string{p1}, addresses(nqn))
	s.ok("nvmf_subsystem_add_listener", at(other, tcp(p1)))
	s.ok("nvmf_subsystem_add_listener", at(nqn, P{"trtype": "tcp", "traddr": "127.0.0.1", "trsvcid": p2}))
	assert.ElementsMatch(s, []string{p1, p2}, addresses(nqn))
	with := func(name string, value any) P {
		a := tcp(p3)
		if a[name] = value; value == nil {
			delete(a, name)
		}
		return a
	}
	refused := []P{
		with("traddr", "192.0.2.77"), with("traddr", "nonsense"), with("traddr", "localhost"), with("traddr", "::1"),
		with("trsvcid", "99999"), with("trsvcid", "abc"), with("trsvcid", "0"), with("trsvcid", 4420), with("trsvcid", nil),
		with("adrfam", "nope"), with("trtype", "NOPE"), with("traddr", nil), with("no_such_member", 1),
	}
	if !s.before("v24.05") { // older releases crash here
		refused = append(refused, with("trtype", nil))
	}
	for _, bad := range refused {
		s.fails(invalidParams, "nvmf_subsystem_add_listener", at(nqn, bad))
	}
	s.fails(invalidParams, "nvmf_subsystem_add_listener", at(s.nqn("nobody"), tcp(p3)))
	s.fails(invalidParams, "nvmf_subsystem_add_listener", P{"nqn": nqn})
	assert.ElementsMatch(s, []string{p1, p2}, addresses(nqn))

	var listeners []spdkrpc.NVMfListener
	s.get(&listeners, "nvmf_subsystem_get_listeners", P{"nqn": nqn})
	assert.Len(s, listeners, 2)
	assert.Nil(s, listeners[0].ANAStates)
	s.fails(invalidParams, "nvmf_subsystem_get_listeners", P{"nqn": s.nqn("nobody")})

	s.fails(invalidParams, "nvmf_subsystem_remove_listener", at(nqn, tcp(p3)))
	s.fails(invalidParams, "nvmf_subsystem_remove_listener", at(s.nqn("nobody"), tcp(p1)))
	s.ok("nvmf_subsystem_remove_listener", at(nqn, tcp(p1)))
	s.fails(invalidParams, "nvmf_subsystem_remove_listener", at(nqn, tcp(p1)))
	assert.Equal(s, []string{p2}, addresses(nqn))
	assert.Equal(s, []string{p1}, addresses(other), "another subsystem's listener at the same address still exists")
	if !s.before("v23.05") {
		s.ok("nvmf_subsystem_allow_any_host", P{"nqn": nqn, "allow_any_host": true})
		secure := at(nqn, tcp(p3))
		secure["secure_channel"] = true
		s.fails(internalError, "nvmf_subsystem_add_listener", secure)
	}
}

func testANA(s *suite) {
	s.transport()
	nqn, plain := s.subsystemWith("ana", P{"ana_reporting": true, "max_namespaces": 3}), s.subsystem("plain")
	port := s.port()
	s.ok("nvmf_subsystem_add_listener", P{"nqn": nqn, "listen_address": tcp(port)})
	s.ok("nvmf_subsystem_add_listener", P{"nqn": plain, "listen_address": tcp(port)})
	states := func() (list []string) {
		s.Helper()
		var listeners []spdkrpc.NVMfListener
		s.get(&listeners, "nvmf_subsystem_get_listeners", P{"nqn": nqn})
		require.Len(s, listeners, 1)
		for i, state := range listeners[0].ANAStates {
			assert.EqualValues(s, i+1, state.ANAGroup)
			list = append(list, string(state.ANAState))
		}
		return list
	}
	set := func(nqn, port, state string, group any) P {
		p := P{"nqn": nqn, "listen_address": tcp(port), "ana_state": state}
		if group != nil {
			p["anagrpid"] = group
		}
		return p
	}
	const method = "nvmf_subsystem_listener_set_ana_state"
	assert.Equal(s, []string{"optimized", "optimized", "optimized"}, states())
	s.ok(method, set(nqn, port, "inaccessible", nil))
	assert.Equal(s, []string{"inaccessible", "inaccessible", "inaccessible"}, states())
	s.ok(method, set(nqn, port, "non_optimized", 2))
	assert.Equal(s, []string{"inaccessible", "non_optimized", "inaccessible"}, states())
	s.fails(internalError, method, set(nqn, port, "optimized", 4))
	s.fails(internalError, method, set(nqn, s.port(), "optimized", nil))
	s.fails(internalError, method, set(plain, port, "optimized", nil))
	s.fails(invalidParams, method, set(nqn, port, "nope", nil))
	s.fails(invalidParams, method, set(s.nqn("nobody"), port, "optimized", nil))
	assert.Equal(s, []string{"inaccessible", "non_optimized", "inaccessible"}, states())
	if !s.before("v24.01") {
		second := s.port()
		s.ok("nvmf_subsystem_add_listener", P{"nqn": plain, "listen_address": tcp(second), "ana_state": "inaccessible"})
		s.fails(invalidParams, "nvmf_subsystem_add_listener", P{"nqn": plain, "listen_address": tcp(s.port()), "ana_state": "nope"})
	}
}

func testReferrals(s *suite) {
	if s.before("v24.01") {
		return
	}
	address := tcp(s.port())
	count := func() (n int) {
		s.Helper()
		var list []spdkrpc.NVMfReferral
		s.get(&list, "nvmf_discovery_get_referrals", nil)
		for _, r := range list {
			if r.Address.Trsvcid == address["trsvcid"] {
				assert.Equal(s, discoveryNQN, r.Subnqn)
				assert.False(s, r.SecureChannel)
				n++
			}
		}
		return n
	}
	s.undo("nvmf_discovery_remove_referral", P{"address": address})
	s.ok("nvmf_discovery_add_referral", P{"address": address})
	s.ok("nvmf_discovery_add_referral", P{"address": address})
	assert.Equal(s, 1, count())
	s.ok("nvmf_discovery_remove_referral", P{"address": address})
	s.fails(internalError, "nvmf_discovery_remove_referral", P{"address": address})
	assert.Zero(s, count())
}
