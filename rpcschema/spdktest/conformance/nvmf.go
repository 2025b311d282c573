package conformance

import (
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const discoveryNQN = "nqn.2014-08.org.nvmexpress.discovery"

// transport ensures that a TCP transport exists. The transport is not removed, because SPDK cannot
// delete transports.
func (s *suite) transport() {
	s.Helper()
	_, _ = s.call("nvmf_create_transport", P{"trtype": "TCP"})
	var list []spdkrpc.NVMfTransport
	s.get(&list, "nvmf_get_transports", P{"trtype": "TCP"})
	require.Len(s, list, 1)
}

// subsystem creates a subsystem and returns its NQN.
func (s *suite) subsystem(base string) string {
	s.Helper()
	return s.subsystemWith(base, nil)
}

func (s *suite) subsystemWith(base string, more P) string {
	s.Helper()
	p := P{"nqn": s.nqn(base)}
	for k, v := range more {
		p[k] = v
	}
	s.undo("nvmf_delete_subsystem", P{"nqn": p["nqn"]})
	s.ok("nvmf_create_subsystem", p)
	return s.nqn(base)
}

func (s *suite) describe(nqn string) spdkrpc.NVMfSubsystem {
	s.Helper()
	var list []spdkrpc.NVMfSubsystem
	s.get(&list, "nvmf_get_subsystems", P{"nqn": nqn})
	require.Len(s, list, 1)
	return list[0]
}

// noSubsystem returns the error code of nvmf_get_subsystems for an unknown NQN.
func (s *suite) noSubsystem() int {
	if s.before("v26.09") {
		return noDevice
	}
	return invalidParams
}

func (s *suite) port() string {
	s.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(s, err)
		port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		require.NoError(s, l.Close())
		if _, taken := portsGiven.LoadOrStore(port, true); !taken {
			return port
		}
	}
}

// portsGiven contains all ports that the function port has returned. The map is needed because the
// kernel may choose the same port again.
var portsGiven sync.Map

func tcp(port string) P {
	return P{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port}
}

func testTransports(s *suite) {
	s.fails(noDevice, "nvmf_get_transports", P{"trtype": "NOPE"})
	s.fails(invalidParams, "nvmf_create_transport", P{"trtype": "NOPE"})
	s.fails(invalidParams, "nvmf_create_transport", P{})
	s.transport()
	s.fails(internalError, "nvmf_create_transport", P{"trtype": "TCP"})
	s.fails(internalError, "nvmf_create_transport", P{"trtype": "tcp"})
	var list []spdkrpc.NVMfTransport
	s.get(&list, "nvmf_get_transports", P{"trtype": "tcp"})
	require.Len(s, list, 1)
	assert.Equal(s, "TCP", list[0].Trtype)
	assert.EqualValues(s, 128, list[0].MaxQueueDepth)
	assert.EqualValues(s, 127, list[0].MaxIOQpairsPerCtrlr)
	assert.EqualValues(s, 131072, list[0].MaxIOSize)
	assert.True(s, *list[0].C2hSuccess)
	s.get(&list, "nvmf_get_transports", nil)
	assert.NotEmpty(s, list)
	s.fails(internalError, "nvmf_get_transports", P{"tgt_name": s.name("nobody")})
	var targets []string
	s.get(&targets, "nvmf_get_targets", nil)
	assert.Equal(s, []string{"nvmf_tgt"}, targets)
	var stats spdkrpc.NVMfStats
	s.get(&stats, "nvmf_get_stats", nil)
	require.NotEmpty(s, stats.PollGroups)
	assert.Contains(s, stats.PollGroups[0].Transports, spdkrpc.NVMfTransportStats{Trtype: "TCP"})
}

func testSubsystems(s *suite) {
	nqn := s.subsystem("plain")
	d := s.describe(nqn)
	assert.EqualValues(s, "NVMe", d.Subtype)
	assert.Equal(s, strings.Repeat("0", 20), *d.SerialNumber)
	assert.Equal(s, "SPDK bdev Controller", *d.ModelNumber)
	assert.EqualValues(s, 32, *d.MaxNamespaces)
	assert.EqualValues(s, 1, *d.MinCntlid)
	assert.EqualValues(s, 65519, *d.MaxCntlid)
	assert.False(s, d.AllowAnyHost)
	assert.Empty(s, d.Hosts)
	assert.Empty(s, d.ListenAddresses)
	assert.Empty(s, d.Namespaces)

	full := s.subsystemWith("full", P{
		"serial_number": "SPDK00000000000002", "model_number": "Model 2", "max_namespaces": 4, "allow_any_host": true,
		"ana_reporting": true, "min_cntlid": 2, "max_cntlid": 100, "tgt_name": "nvmf_tgt",
	})
	d = s.describe(full)
	assert.Equal(s, "SPDK00000000000002", *d.SerialNumber)
	assert.Equal(s, "Model 2", *d.ModelNumber)
	assert.EqualValues(s, 4, *d.MaxNamespaces)
	assert.EqualValues(s, 2, *d.MinCntlid)
	assert.EqualValues(s, 100, *d.MaxCntlid)
	assert.True(s, d.AllowAnyHost)

	var all []spdkrpc.NVMfSubsystem
	s.get(&all, "nvmf_get_subsystems", nil)
	assert.Contains(s, all, d)
	for _, other := range all {
		if other.NQN == discoveryNQN {
			assert.EqualValues(s, "Discovery", other.Subtype)
			assert.True(s, other.AllowAnyHost)
		}
	}

	s.fails(internalError, "nvmf_create_subsystem", P{"nqn": nqn})
	s.fails(internalError, "nvmf_create_subsystem", P{"nqn": nqn, "serial_number": "OTHER"})
	for _, bad := range []string{"", "bad", "nqn.2016-06.io.spdk", "NQN.2016-06.io.spdk:x", "nqn.2014-08.org.nvmexpress:uuid:zz",
		"nqn.2016-06.io.spdk:" + strings.Repeat("x", 204), "nqn.2016-06.io..spdk:x", "nqn.2016-06.-io:x", "nqn.20a6-06.io:x"} {
		s.fails(internalError, "nvmf_create_subsystem", P{"nqn": bad})
	}
	for _, good := range []string{"nqn.2016-13.io.spdk:" + s.prefix, "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111112",
		s.nqn("ü x"), "nqn.2016-06.io.spdk:" + s.prefix + strings.Repeat("x", 203-len(s.prefix))} {
		s.ok("nvmf_create_subsystem", P{"nqn": good})
		assert.Equal(s, good, s.describe(good).NQN)
		s.ok("nvmf_delete_subsystem", P{"nqn": good})
	}
	x := s.nqn("x")
	s.fails(invalidParams, "nvmf_create_subsystem", P{"nqn": x, "serial_number": strings.Repeat("S", 21)})
	s.fails(invalidParams, "nvmf_create_subsystem", P{"nqn": x, "serial_number": "ü"})
	s.fails(invalidParams, "nvmf_create_subsystem", P{"nqn": x, "model_number": strings.Repeat("M", 41)})
	s.fails(invalidParams, "nvmf_create_subsystem", P{"nqn": x, "min_cntlid": 10, "max_cntlid": 5})
	s.fails(invalidParams, "nvmf_create_subsystem", P{"nqn": x, "min_cntlid": 0})
	s.fails(internalError, "nvmf_create_subsystem", P{"nqn": x, "tgt_name": s.name("nobody")})
	s.fails(s.noSubsystem(), "nvmf_get_subsystems", P{"nqn": x})

	var controllers []spdkrpc.NVMfController
	s.get(&controllers, "nvmf_subsystem_get_controllers", P{"nqn": nqn})
	assert.Empty(s, controllers)
	var qpairs []spdkrpc.NVMfQpair
	s.get(&qpairs, "nvmf_subsystem_get_qpairs", P{"nqn": nqn})
	assert.Empty(s, qpairs)
	s.fails(invalidParams, "nvmf_subsystem_get_controllers", P{"nqn": x})
	s.fails(invalidParams, "nvmf_subsystem_get_qpairs", P{"nqn": x})

	s.fails(invalidParams, "nvmf_delete_subsystem", P{"nqn": x})
	s.ok("nvmf_delete_subsystem", P{"nqn": nqn})
	s.fails(invalidParams, "nvmf_delete_subsystem", P{"nqn": nqn})
	s.fails(s.noSubsystem(), "nvmf_get_subsystems", P{"nqn": nqn})
}

func testNamespaces(s *suite) {
	s.transport()
	store := s.store("lvs")
	v := s.lvol(store, "v", 64, true)
	m0, m1, m2 := s.malloc("m0", 8), s.malloc("m1", 8), s.malloc("m2", 8)
	nqn, other := s.subsystem("a"), s.subsystemWith("b", P{"max_namespaces": 4, "ana_reporting": true})
	add := func(nqn string, namespace P) P { return P{"nqn": nqn, "namespace": namespace} }
	nsid := func(nqn string, namespace P) (id uint32) {
		s.Helper()
		s.get(&id, "nvmf_subsystem_add_ns", add(nqn, namespace))
		return id
	}
	refuse := func(nqn string, namespace P) {
		s.Helper()
		before := s.describe(nqn)
		s.fails(invalidParams, "nvmf_subsystem_add_ns", add(nqn, namespace))
		assert.Equal(s, before, s.describe(nqn))
	}
	refuse(nqn, P{"bdev_name": s.name("nobody")})
	refuse(nqn, P{})
	s.fails(invalidParams, "nvmf_subsystem_add_ns", P{"nqn": nqn})
	s.fails(invalidParams, "nvmf_subsystem_add_ns", add(s.nqn("nobody"), P{"bdev_name": m0}))
	assert.EqualValues(s, 1, nsid(nqn, P{"bdev_name": m0}))
	b := s.bdev(m0)
	assert.True(s, b.Claimed)
	if !s.before("v24.05") {
		assert.EqualValues(s, "exclusive_write", *b.ClaimType)
	}
	require.Len(s, s.describe(nqn).Namespaces, 1)
	ns := s.describe(nqn).Namespaces[0]
	assert.Equal(s, m0, ns.BdevName)
	assert.Equal(s, m0, ns.Name)
	assert.Equal(s, b.UUID, *ns.UUID)
	assert.Equal(s, strings.ToUpper(strings.ReplaceAll(b.UUID, "-", "")), *ns.NGUID)
	assert.Nil(s, ns.EUI64)
	assert.Nil(s, ns.Anagrpid)

	refuse(nqn, P{"bdev_name": m1, "nsid": 1})
	refuse(nqn, P{"bdev_name": m0, "nsid": 7}) // the bdev is already claimed
	refuse(other, P{"bdev_name": m0})
	refuse(nqn, P{"bdev_name": m1, "nsid": 33})
	refuse(other, P{"bdev_name": m1, "nsid": 5})
	refuse(nqn, P{"bdev_name": m1, "nsid": uint32(1<<32 - 1)})
	refuse(nqn, P{"bdev_name": m1, "nguid": "xyz"})
	refuse(nqn, P{"bdev_name": m1, "nguid": b.UUID})
	refuse(nqn, P{"bdev_name": m1, "uuid": "bad"})
	refuse(nqn, P{"bdev_name": m1, "eui64": "12"})
	refuse(nqn, P{"bdev_name": m1, "no_such_member": 1})
	refuse(other, P{"bdev_name": m1, "anagrpid": 5})
	assert.False(s, s.bdev(m1).Claimed, "failures claim nothing")

	const uuid = "22222222-2222-4222-8222-222222222222"
	assert.EqualValues(s, 9, nsid(nqn, P{"bdev_name": m1, "nsid": 9, "uuid": uuid, "nguid": "abcdef0123456789abcdef0123456789", "eui64": "ABCDEF0123456789"}))
	ns = s.describe(nqn).Namespaces[1]
	assert.Equal(s, uuid, *ns.UUID)
	assert.Equal(s, "ABCDEF0123456789ABCDEF0123456789", *ns.NGUID)
	assert.Equal(s, "ABCDEF0123456789", *ns.EUI64)
	assert.EqualValues(s, 2, nsid(nqn, P{"bdev_name": store + "/v", "nsid": 0}), "the lowest free NSID")
	assert.Equal(s, v, s.describe(nqn).Namespaces[1].BdevName, "an alias is reported as the name")
	assert.EqualValues(s, 1, nsid(other, P{"bdev_name": m2}))
	assert.EqualValues(s, 1, *s.describe(other).Namespaces[0].Anagrpid)

	if !s.before("v24.09") {
		s.ok("nvmf_subsystem_set_ns_ana_group", P{"nqn": other, "nsid": 1, "anagrpid": 3})
		assert.EqualValues(s, 3, *s.describe(other).Namespaces[0].Anagrpid)
		s.fails(invalidParams, "nvmf_subsystem_set_ns_ana_group", P{"nqn": other, "nsid": 2, "anagrpid": 3})
		s.fails(invalidParams, "nvmf_subsystem_set_ns_ana_group", P{"nqn": other, "nsid": 1, "anagrpid": 5})
	}

	// Snapshots of an exported volume can still be taken, and the volume can still be grown. When
	// it is deleted, its namespace is removed as well.
	s.ok("bdev_lvol_resize", P{"name": v, "size_in_mib": 128})
	s.ok("bdev_lvol_snapshot", P{"lvol_name": v, "snapshot_name": "s"})
	assert.True(s, s.bdev(v).Claimed)
	// the volume is in use
	s.fails(invalidParams, "bdev_lvol_resize", P{"name": v, "size_in_mib": 64})
	s.ok("bdev_lvol_delete", P{"name": v})
	assert.Len(s, s.describe(nqn).Namespaces, 2)
	s.ok("bdev_malloc_delete", P{"name": m0})
	assert.Len(s, s.describe(nqn).Namespaces, 1)

	remove := func(nsid any) P { return P{"nqn": nqn, "nsid": nsid} }
	for _, id := range []any{1, 2, 30, 0, 100} {
		s.fails(invalidParams, "nvmf_subsystem_remove_ns", remove(id))
	}
	s.fails(invalidParams, "nvmf_subsystem_remove_ns", P{"nqn": s.nqn("nobody"), "nsid": 1})
	s.ok("nvmf_subsystem_remove_ns", remove(9))
	s.fails(invalidParams, "nvmf_subsystem_remove_ns", remove(9))
	assert.False(s, s.bdev(m1).Claimed)
	assert.Empty(s, s.describe(nqn).Namespaces)
	s.ok("nvmf_delete_subsystem", P{"nqn": other})
	assert.False(s, s.bdev(m2).Claimed, "deleting a subsystem releases its bdevs")
}

func testHosts(s *suite) {
	nqn := s.subsystem("a")
	h1, h2 := "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111", s.nqn("host2")
	host := func(h any) P { return P{"nqn": nqn, "host": h} }
	names := func() (list []string) {
		s.Helper()
		for _, h := range s.describe(nqn).Hosts {
			list = append(list, h.NQN)
		}
		return list
	}
	s.ok("nvmf_subsystem_add_host", host(h1))
	if s.before("v24.09") {
		s.ok("nvmf_subsystem_add_host", host(h1))
	} else {
		s.fails(internalError, "nvmf_subsystem_add_host", host(h1))
	}
	assert.Equal(s, []string{h1}, names())
	for _, bad := range []string{"bad", "", strings.ToUpper(h1)} {
		s.fails(internalError, "nvmf_subsystem_add_host", host(bad))
	}
	s.fails(invalidParams, "nvmf_subsystem_add_host", P{"nqn": s.nqn("nobody"), "host": h1})
	s.fails(invalidParams, "nvmf_subsystem_add_host", P{"nqn": nqn})
	s.ok("nvmf_subsystem_add_host", host(h2))
	assert.ElementsMatch(s, []string{h1, h2}, names())
	s.fails(internalError, "nvmf_subsystem_remove_host", host(s.nqn("nobody")))
	s.ok("nvmf_subsystem_remove_host", host(h2))
	s.fails(internalError, "nvmf_subsystem_remove_host", host(h2))
	s.fails(invalidParams, "nvmf_subsystem_remove_host", P{"nqn": s.nqn("nobody"), "host": h1})
	assert.Equal(s, []string{h1}, names())

	allow := func(anyHost bool) P { return P{"nqn": nqn, "allow_any_host": anyHost} }
	for _, anyHost := range []bool{true, true, false, false} {
		s.ok("nvmf_subsystem_allow_any_host", allow(anyHost))
		assert.Equal(s, anyHost, s.describe(nqn).AllowAnyHost)
		assert.Equal(s, []string{h1}, names(), "the list of hosts is unchanged")
	}
	s.fails(invalidParams, "nvmf_subsystem_allow_any_host", P{"nqn": s.nqn("nobody"), "allow_any_host": true})
}
