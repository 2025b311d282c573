package exports

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const (
	hostA = "nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-000000000001"
	hostB = "nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-000000000002"
	hostC = "nqn.2014-08.org.nvmexpress:uuid:7d9c0a8e-5b1f-4c02-9a57-000000000003"
)

var here = Portal{Transport: "TCP", Addr: "127.0.0.1", Port: "4420"}

// A world is a target with volumes lvs0/v0 and lvs0/v1 but no exports.
type world struct {
	t   *testing.T
	sim *spdktest.Target
	rpc *spdkrpc.Client

	socket spdkrpc.Caller
	v0     string // UUID of lvs0/v0
	call   func(method, params string)
}

func newWorld(t *testing.T, release string) *world {
	sim, err := spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease(release)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sim.Close() })
	socket := spdkrpc.NewSocket(sim.Socket())
	t.Cleanup(func() { _ = socket.Close() })
	w := &world{t: t, sim: sim, socket: socket, rpc: spdkrpc.NewClient(socket)}
	w.call = func(method, params string) {
		t.Helper()
		require.NoError(t, socket.Call(t.Context(), method, json.RawMessage(params), nil), method)
	}
	w.call("bdev_malloc_create", `{"name":"m0","num_blocks":65536,"block_size":4096}`)
	w.call("bdev_lvol_create_lvstore", `{"bdev_name":"m0","lvs_name":"lvs0"}`)
	for _, name := range []string{"v0", "v1"} {
		w.call("bdev_lvol_create", fmt.Sprintf(`{"lvs_name":"lvs0","lvol_name":%q,"size_in_mib":8,"thin_provision":true}`, name))
	}
	w.v0 = w.uuid("lvs0/v0")
	return w
}

func (w *world) uuid(volume string) string {
	w.t.Helper()
	bdevs, err := w.rpc.BdevGetBdevs(w.t.Context(), spdkrpc.BdevGetBdevsParams{Name: &volume})
	require.NoError(w.t, err)
	return bdevs[0].UUID
}

func (w *world) plan(r Request) *Plan {
	w.t.Helper()
	p, err := PlanExport(w.t.Context(), w.rpc, r)
	require.NoError(w.t, err)
	return p
}

func (w *world) export(r Request) *Plan {
	w.t.Helper()
	p := w.plan(r)
	require.NoError(w.t, p.Run(w.t.Context(), func(Step) {}))
	require.NoError(w.t, p.Verify(w.t.Context(), w.rpc))
	return p
}

func (w *world) list() []Export {
	w.t.Helper()
	list, err := List(w.t.Context(), w.rpc, true)
	require.NoError(w.t, err)
	return list
}

func methods(p *Plan) (list []string) {
	for _, s := range p.Steps {
		list = append(list, s.Method)
	}
	return list
}

// A new export has ANA reporting, and admits the host. The listener is added last. Planning the
// same export again yields no steps.
func TestExportAddsTheListenerLast(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05", "v26.09"} {
		t.Run(release, func(t *testing.T) {
			w := newWorld(t, release)
			r := Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}}
			p := w.plan(r)
			assert.Equal(t, []string{"nvmf_create_transport", "nvmf_create_subsystem", "nvmf_subsystem_add_ns", "nvmf_subsystem_add_host", "nvmf_subsystem_add_listener"}, methods(p))
			assert.Empty(t, w.list(), "a plan changes nothing")
			created, ok := strings.CutPrefix(p.Steps[1].String(), "nvmf_create_subsystem ")
			require.True(t, ok)
			assert.JSONEq(t, `{"nqn":"`+rpcschema.UUIDPrefix+w.v0+`","serial_number":"`+strings.ReplaceAll(w.v0, "-", "")[:20]+`",
				"max_namespaces":1,"allow_any_host":false,"ana_reporting":true}`, created)
			w.export(r)
			assert.Equal(t, []Export{{
				Volume: "lvs0/v0", UUID: w.v0, NQN: rpcschema.UUIDPrefix + w.v0, Serial: strings.ReplaceAll(w.v0, "-", "")[:20], ANA: true,
				Hosts: []Host{{NQN: hostA}}, Listeners: []string{"tcp 127.0.0.1:4420"}, Connected: []string{},
			}}, w.list())
			w.sim.ForgetCalls()
			unread, err := List(t.Context(), w.rpc, false)
			require.NoError(t, err)
			assert.Nil(t, unread[0].Connected)
			for _, c := range w.sim.Calls() {
				assert.NotEqual(t, "nvmf_subsystem_get_controllers", c.Method, "listing connections interrupts the subsystem")
			}
			p = w.plan(r)
			assert.Empty(t, p.Steps)
			assert.False(t, p.Authenticates())
			assert.Equal(t, []string{"nvme connect -t tcp -a 127.0.0.1 -s 4420 -n " + rpcschema.UUIDPrefix + w.v0}, p.Connect())
			p = w.export(Request{Volume: "lvs0/v1", NQN: "nqn.2024-01.com.example:", Serial: "S1", Hosts: []string{hostB}})
			assert.Regexp(t, `^nvme connect -t tcp -a 127\.0\.0\.1 -s 4420 -n nqn\.2024-01\.com\.example:[0-9a-f-]{36}$`, p.Connect()[0], "the new export listens at the same address as the other one")
		})
	}
}

func TestUnsafeExportsAreRefused(t *testing.T) {
	w := newWorld(t, "v26.05")
	at := []Portal{here}
	a := []string{hostA}
	key := &Key{Name: "k"}
	refuses := func(r Request, kind error, says string) {
		t.Helper()
		w.sim.ForgetCalls()
		_, err := PlanExport(t.Context(), w.rpc, r)
		require.ErrorIs(t, err, kind)
		assert.ErrorContains(t, err, says)
		for _, c := range w.sim.Calls() {
			m, _ := rpcschema.Default().Method(c.Method)
			assert.False(t, m.Mutates, c.Method)
		}
	}
	refuses(Request{Volume: "lvs0/v0"}, ErrInvalid, "name the hosts")
	refuses(Request{Volume: "lvs0/v0", Hosts: a, AnyHost: true}, ErrInvalid, "either name hosts")
	refuses(Request{Volume: "lvs0/v0", Hosts: []string{"node1"}}, ErrInvalid, "/etc/nvme/hostnqn")
	refuses(Request{Volume: "lvs0/v0", Hosts: []string{rpcschema.UUIDPrefix + "not-a-uuid"}}, ErrInvalid, "/etc/nvme/hostnqn")
	refuses(Request{Volume: "lvs0/v0", Hosts: []string{hostA, "nqn.2024-01.com.example:\x1b[1m"}}, ErrInvalid, `"nqn.2024-01.com.example:\x1b[1m" contains a control character`)
	refuses(Request{Volume: "lvs0/v0", Hosts: a, NQN: "nqn.2024-01.com.example:\x07"}, ErrInvalid, "contains a control character")
	refuses(Request{Volume: "lvs0/v0", Hosts: a, NQN: "vol"}, ErrInvalid, "not an NQN")
	refuses(Request{Volume: "lvs0/v0", Hosts: a, NQN: rpcschema.UUIDPrefix + "vol"}, ErrInvalid, "not an NQN")
	refuses(Request{Volume: "lvs0/v0", AnyHost: true, Key: key}, ErrInvalid, "keys belong to hosts")
	refuses(Request{Volume: "lvs0/v0", Hosts: a, CtrlrKey: key}, ErrInvalid, "only to hosts that authenticate themselves")
	refuses(Request{Volume: "lvs0/none", Hosts: a}, ErrRefused, "no volume lvs0/none is visible")
	refuses(Request{Volume: "m0", Hosts: a}, ErrRefused, "not a logical volume")
	refuses(Request{Volume: "lvs0/v0", Hosts: a}, ErrRefused, "--listen ADDRESS:4420")
	refuses(Request{Volume: "lvs0/v0", Hosts: a, Listen: at, Key: key}, ErrRefused, "no key k in the target's keyring")
	w.export(Request{Volume: "lvs0/v0", Hosts: a, Listen: at})
	refuses(Request{Volume: "lvs0/v1", AnyHost: true}, ErrRefused, "name an address (--listen)")
	refuses(Request{Volume: "lvs0/v0", Hosts: []string{hostB}}, ErrRefused, "share the volume (--shared)")
	refuses(Request{Volume: "lvs0/v0", AnyHost: true}, ErrRefused, "share the volume (--shared)")
	refuses(Request{Volume: "lvs0/v0", Hosts: a, NQN: "nqn.2024-01.com.example:other"}, ErrRefused, "not as nqn.2024-01.com.example:other")
	refuses(Request{Volume: "lvs0/v0", Hosts: a, Serial: "other"}, ErrRefused, "a different serial number")
	refuses(Request{Volume: "lvs0/v0", Hosts: a, Key: key}, ErrRefused, "with different keys or without keys")
	refuses(Request{Volume: "lvs0/v1", Hosts: a, NQN: rpcschema.UUIDPrefix + w.v0}, ErrRefused, "does not export volume lvs0/v1")

	closed := Request{Volume: "lvs0/v1", Hosts: a, Listen: at}
	w.export(closed)
	nqn := closed.nqn(w.uuid("lvs0/v1"))
	w.call("nvmf_subsystem_remove_listener", `{"nqn":"`+nqn+`","listen_address":{"trtype":"TCP","adrfam":"IPv4","traddr":"127.0.0.1","trsvcid":"4420"}}`)
	refuses(Request{Volume: "lvs0/v1", AnyHost: true, Shared: true}, ErrRefused, "name an address (--listen)")
	w.call("nvmf_delete_subsystem", `{"nqn":"`+nqn+`"}`)

	// This package did not create these exports.
	foreign := func(nqn, options, bdevs string) {
		w.call("nvmf_delete_subsystem", `{"nqn":"`+rpcschema.UUIDPrefix+w.v0+`"}`)
		w.call("nvmf_create_subsystem", fmt.Sprintf(`{"nqn":%q%s}`, nqn, options))
		for b := range strings.FieldsSeq(bdevs) {
			w.call("nvmf_subsystem_add_ns", fmt.Sprintf(`{"nqn":%q,"namespace":{"bdev_name":%q}}`, nqn, b))
		}
	}
	restore := func(nqn string) {
		w.call("nvmf_delete_subsystem", fmt.Sprintf(`{"nqn":%q}`, nqn))
		w.export(Request{Volume: "lvs0/v0", Hosts: a, Listen: at})
	}
	foreign("nqn.2024-01.com.example:x", "", "lvs0/v0")
	refuses(Request{Volume: "lvs0/v0", Hosts: a}, ErrRefused, "without ANA reporting")
	restore("nqn.2024-01.com.example:x")
	foreign("nqn.2024-01.com.example:x", `,"ana_reporting":true`, "lvs0/v0 lvs0/v1")
	refuses(Request{Volume: "lvs0/v0", Hosts: a}, ErrRefused, "exports 2 bdevs")
	restore("nqn.2024-01.com.example:x")
	foreign("nqn.2024-01.com.example:x", `,"ana_reporting":true,"allow_any_host":true`, "lvs0/v0")
	refuses(Request{Volume: "lvs0/v0", Hosts: a}, ErrRefused, "admits every host")
	restore("nqn.2024-01.com.example:x")
	foreign(driverPrefix+w.v0, `,"ana_reporting":true`, "lvs0/v0")
	refuses(Request{Volume: "lvs0/v0", Hosts: a, Listen: at}, ErrRefused, "a name of the CSI driver")
	assert.Contains(t, w.export(Request{Volume: "lvs0/v0", Hosts: a, Listen: at, NQN: driverPrefix}).Warnings[0], "is a name of the CSI driver's exports")
	w.call("nvmf_delete_subsystem", `{"nqn":"`+driverPrefix+w.v0+`"}`)

	w.call("bdev_lvol_create_lvstore", `{"bdev_name":"lvs0/v1","lvs_name":"inner"}`)
	refuses(Request{Volume: "lvs0/v1", Hosts: a, Listen: at}, ErrRefused, "in use (claimed) by another bdev")

	w.call("iscsi_create_portal_group", `{"tag":1,"portals":[{"host":"127.0.0.1","port":"3260"}]}`)
	w.call("iscsi_create_initiator_group", `{"tag":1,"initiators":["ANY"],"netmasks":["ANY"]}`)
	w.call("iscsi_create_target_node", `{"name":"disk","alias_name":"disk","pg_ig_maps":[{"pg_tag":1,"ig_tag":1}],"luns":[{"bdev_name":"lvs0/v0","lun_id":0}],"queue_depth":64}`)
	refuses(Request{Volume: "lvs0/v0", Hosts: a, Listen: at}, ErrRefused, "iSCSI target iqn.2016-06.io.spdk:disk offers volume lvs0/v0 already")
}

func TestRepeatedHostIsAdmittedOnce(t *testing.T) {
	w := newWorld(t, "v26.05")
	p := w.export(Request{Volume: "lvs0/v0", Hosts: []string{hostA, hostA}, Listen: []Portal{here}})
	assert.Empty(t, p.Warnings)
	assert.Equal(t, []string{hostA}, p.Hosts())
}

func TestRiskyExportsCauseWarnings(t *testing.T) {
	w := newWorld(t, "v26.05")
	w.call("bdev_lvol_snapshot", `{"lvol_name":"lvs0/v1","snapshot_name":"s"}`)
	p := w.export(Request{Volume: "lvs0/v0", AnyHost: true, Listen: []Portal{here}})
	require.Len(t, p.Warnings, 1)
	assert.Contains(t, p.Warnings[0], "any host that reaches 127.0.0.1:4420 can connect, and read and overwrite the volume")
	assert.Contains(t, Table(w.list(), false), "admits every host")
	p = w.plan(Request{Volume: "lvs0/s", Hosts: []string{hostA, hostB}, Listen: []Portal{here}})
	require.Len(t, p.Warnings, 2)
	assert.Contains(t, p.Warnings[0], "2 hosts are admitted")
	assert.Contains(t, p.Warnings[1], "can only read it")
}

func TestKeysRequireARecentRelease(t *testing.T) {
	w := newWorld(t, "v24.01")
	_, err := PlanExport(t.Context(), w.rpc, Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}, Key: &Key{Name: "k", Secret: "s"}})
	require.ErrorIs(t, err, ErrRefused)
	assert.ErrorContains(t, err, "SPDK v24.01 does not authenticate hosts: upgrade it to v24.09")
}

// A key is added to the keyring before the first host that uses it is admitted. If every host is
// already admitted with the key, nothing is added.
func TestKeysAreAddedOnlyForNewHosts(t *testing.T) {
	w := newWorld(t, "v26.05")
	file := filepath.Join(t.TempDir(), "k.key")
	require.NoError(t, os.WriteFile(file, []byte("secret"), 0o600))
	w.call("keyring_file_add_key", fmt.Sprintf(`{"name":"k","path":%q}`, file))
	w.export(Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}, Key: &Key{Name: "k"}})
	k := &Key{Name: "k", Secret: "s"}
	assert.Empty(t, w.plan(Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Key: k}).Steps)
	for _, key := range []*Key{k, {Name: "new", Secret: "s"}} {
		p := w.plan(Request{Volume: "lvs0/v0", Hosts: []string{hostB}, Key: key, Shared: true})
		assert.Equal(t, []string{"spdkgate_key_add", "nvmf_subsystem_add_host"}, methods(p))
	}
	_, err := PlanExport(t.Context(), w.rpc, Request{Volume: "lvs0/v0", Hosts: []string{hostB}, Key: &Key{Name: "none"}, Shared: true})
	require.ErrorIs(t, err, ErrRefused)
	assert.ErrorContains(t, err, "no key none in the target's keyring")
}

func TestConnectCommandIsQuoted(t *testing.T) {
	p := &Plan{NQN: "nqn.2024-01.com.example:it's", portals: []Portal{here}}
	assert.Equal(t, []string{`nvme connect -t tcp -a 127.0.0.1 -s 4420 -n 'nqn.2024-01.com.example:it'\''s'`}, p.Connect())
}

func TestPortalsAreParsed(t *testing.T) {
	for text, want := range map[string]string{"192.0.2.11:4420": "192.0.2.11:4420", "[2001:0db8::11]:4420": "[2001:db8::11]:4420"} {
		at, err := ParsePortal("tcp", text)
		require.NoError(t, err)
		assert.Equal(t, want, at.String())
		assert.Equal(t, at, portalOf(spdkrpc.NVMfTransportID{Trtype: "TCP", Traddr: strings.Trim(text[:strings.LastIndex(text, ":")], "[]"), Trsvcid: "4420"}))
	}
	at, err := ParsePortal("tcp", "[::ffff:192.0.2.11]:4420")
	require.NoError(t, err)
	assert.Equal(t, "192.0.2.11:4420", at.String())
	for _, text := range []string{"", "192.0.2.11", "storage1:4420", "0.0.0.0:4420", "[::]:4420", "192.0.2.11:0", "224.0.0.1:4420", "[fe80::1]:4420"} {
		_, err := ParsePortal("tcp", text)
		require.ErrorIs(t, err, ErrInvalid, text)
	}
}

func TestExportsAreFormattedAsATable(t *testing.T) {
	assert.Equal(t, `VOLUME   NQN    HOSTS                LISTENERS                            CONNECTED
lvs0/v0  nqn.a  nqn.h1 (key k), any  tcp 192.0.2.1:4420, rdma [::1]:4420  ?
-        nqn.b  -                    -                                    -
`, strings.ReplaceAll(strings.Split(Table([]Export{
		{Volume: "lvs0/v0", NQN: "nqn.a", ANA: true, Hosts: []Host{{NQN: "nqn.h1", Key: "k"}, {NQN: "any"}}, Listeners: []string{"tcp 192.0.2.1:4420", "rdma [::1]:4420"}},
		{NQN: "nqn.b", Connected: []string{}},
	}, true), "!")[0], "\t", ""))
	assert.NotContains(t, Table(nil, false), "CONNECTED")
	assert.Contains(t, Table([]Export{{Volume: "v\n\x1b", NQN: "n"}}, false), `v\u000a\u001b`)
}
