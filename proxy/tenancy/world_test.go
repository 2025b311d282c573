package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// A world is a simulated target with objects of two tenants, red and blue, and some objects without
// an owner.
type world struct {
	t       testing.TB
	release rpcschema.Release
	socket  *spdkrpc.Socket
	tenancy *Tenancy

	mu   sync.Mutex
	sent []sent // calls that the target has received, except the tenancy's own queries
	asks []sent
	fail int  // number of the query that should fail; 1 is the next query, and 0 means none
	lost bool // the query has failed
}

type sent struct {
	method string
	params map[string]any
}

// things contains the objects of one tenant.
type things struct {
	lvs, lvsUUID string
	volume       string // UUID
	snapshot     string
	malloc       string
	mallocUUID   string
	nqn          string
	iqn          string
	key          string
}

// names lists all spellings of the objects of a kind.
func (x things) names(kind string) []string {
	switch kind {
	case "bdev":
		return []string{
			x.volume, strings.ToUpper(x.volume), x.lvs + "/vol", x.lvs + "/vol-snap", x.snapshot, strings.ReplaceAll(x.volume, "-", ""),
			x.malloc, x.mallocUUID, strings.ToUpper(x.mallocUUID),
		}
	case "lvstore":
		return []string{x.lvs, x.lvsUUID}
	case "lvstore-uuid":
		return []string{x.lvsUUID, strings.ToUpper(x.lvsUUID)}
	case "nqn":
		return []string{x.nqn}
	case "iqn":
		return []string{x.iqn, strings.ToUpper(x.iqn[:3]) + x.iqn[3:]}
	case "key":
		return []string{x.key}
	}
	return nil
}

// secrets returns all strings that could identify an object of the tenant.
func (x things) secrets() (all []string) {
	for _, kind := range plan.Objects() {
		all = append(all, x.names(kind)...)
	}
	return all
}

func redTenant() Tenant {
	return Tenant{
		Name: "red", LVStores: []string{"lvs-red", "lvs-red2"}, Bdevs: []string{"red-*"}, NQNPrefixes: []string{"nqn.2016-06.io.spdk:red-"},
		IQNPrefixes: []string{"iqn.2016-06.io.spdk:red-"}, KeyPrefixes: []string{"red-"}, Addresses: []string{"127.0.0.1:4420"}, Hosts: []string{"nqn.2014-08.org.nvmexpress:uuid:*"},
	}
}

func blueTenant() Tenant {
	return Tenant{
		Name: "blue", LVStores: []string{"lvs-blue"}, Bdevs: []string{"blue-*"}, NQNPrefixes: []string{"nqn.2016-06.io.spdk:blue-"},
		IQNPrefixes: []string{"iqn.2016-06.io.spdk:blue-"}, KeyPrefixes: []string{"blue-"}, Addresses: []string{"127.0.0.2"}, Hosts: []string{"nqn.2014-08.org.nvmexpress:uuid:*"},
	}
}

const (
	redHost  = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-000000000001"
	lostHost = "nqn.2026-11.example:host-of-nobody"
)

func newWorld(t testing.TB, release string, change ...func(*Tenant)) *world {
	target, err := spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease(release)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	return worldOf(t, target.Socket(), target.Release(), change...)
}

// realWorld creates a world on a real target that has just been started and whose socket is
// SPDK_SOCK.
func realWorld(t *testing.T, change ...func(*Tenant)) *world {
	socket := realtarget.Socket(t)
	var v spdkrpc.FrameworkVersion
	require.NoError(t, spdkrpc.NewSocket(socket).Call(t.Context(), "spdk_get_version", nil, &v))
	release, err := rpcschema.ParseRelease(v.Version)
	require.NoError(t, err)
	return worldOf(t, socket, release, change...)
}

func worldOf(t testing.TB, socket string, release rpcschema.Release, change ...func(*Tenant)) *world {
	var err error
	w := &world{t: t, release: release, socket: spdkrpc.NewSocket(socket)}
	t.Cleanup(func() { _ = w.socket.Close() })
	red, blue := redTenant(), blueTenant()
	for _, f := range change {
		f(&red)
	}
	w.tenancy, err = New([]Tenant{red, blue}, map[string]string{"alice": "red", "bob": "blue"}, rpcschema.Default(), nil)
	require.NoError(t, err)
	return w
}

func (w *world) raw(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
	var result json.RawMessage
	var p any
	if params != nil {
		p = params
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := w.socket.Call(ctx, method, p, &result)
	return result, err
}

func (w *world) ask(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
	w.mu.Lock()
	w.asks = append(w.asks, sent{method, params})
	fails := w.fail == 1
	w.lost = w.lost || fails
	w.fail = max(0, w.fail-1)
	w.mu.Unlock()
	if fails {
		return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.Failed, Code: -32603, Message: "struck"}
	}
	return w.raw(ctx, method, params)
}

// call makes a call for a user through the same steps as the proxy. The user "" has no tenant.
func (w *world) call(user, method string, params map[string]any) (json.RawMessage, error) {
	m, err := rpcschema.Default().Find(method, w.release)
	if err != nil {
		return nil, err
	}
	if params, err = decoded(params); err != nil {
		return nil, err
	}
	if params, _, err = m.Translate(params, w.release); err != nil {
		return nil, err
	}
	if err := rpcschema.Default().ValidateParams(method, params, w.release); err != nil {
		return nil, err
	}
	grant, err := w.tenancy.Of(user).Admit(w.t.Context(), m, params, w.ask)
	if err != nil {
		return nil, err
	}
	defer grant.Close()
	w.mu.Lock()
	w.sent = append(w.sent, sent{method, grant.Params})
	w.mu.Unlock()
	result, err := w.raw(w.t.Context(), method, grant.Params)
	return grant.Answer(w.t.Context(), result, err)
}

func decoded(params map[string]any) (map[string]any, error) {
	if params == nil {
		return nil, nil
	}
	text, err := jsonrpc.Marshal(params)
	if err != nil {
		return nil, err
	}
	v, err := jsonrpc.DecodeValue(text, jsonrpc.Limits{})
	return v.(map[string]any), err
}

type p = map[string]any

func (w *world) must(user, method string, params p) json.RawMessage {
	w.t.Helper()
	result, err := w.call(user, method, params)
	require.NoError(w.t, err, "%s %s %v", user, method, params)
	return result
}

// text decodes a result that consists of one string.
func text(t testing.TB, result json.RawMessage) (s string) {
	t.Helper()
	require.NoError(t, json.Unmarshal(result, &s), string(result))
	return s
}

// populate creates one tenant's objects as an administrator.
func (w *world) populate(color string) things {
	x := things{
		lvs: "lvs-" + color, malloc: color + "-malloc", nqn: "nqn.2016-06.io.spdk:" + color + "-one",
		iqn: "iqn.2016-06.io.spdk:" + color + "-disk", key: color + "-key",
	}
	base := "Base" + strings.ToUpper(color[:1])
	w.must("", "bdev_malloc_create", p{"name": base, "num_blocks": 10240, "block_size": 4096})
	w.must("", "bdev_malloc_create", p{"name": x.malloc, "num_blocks": 2048, "block_size": 512})
	x.mallocUUID = w.field("bdev_get_bdevs", p{"name": x.malloc}, "uuid")
	x.lvsUUID = text(w.t, w.must("", "bdev_lvol_create_lvstore", p{"bdev_name": base, "lvs_name": x.lvs}))
	x.volume = text(w.t, w.must("", "bdev_lvol_create", p{"lvol_name": "vol", "size_in_mib": 8, "lvs_name": x.lvs, "thin_provision": true}))
	x.snapshot = text(w.t, w.must("", "bdev_lvol_snapshot", p{"lvol_name": x.volume, "snapshot_name": "vol-snap"}))
	w.must("", "nvmf_create_subsystem", p{"nqn": x.nqn, "allow_any_host": false})
	w.must("", "nvmf_subsystem_add_ns", p{"nqn": x.nqn, "namespace": p{"bdev_name": x.volume}})
	w.must("", "nvmf_subsystem_add_host", p{"nqn": x.nqn, "host": redHost})
	w.must("", "nvmf_subsystem_add_host", p{"nqn": x.nqn, "host": lostHost})
	return x
}

// settle creates the objects of both tenants, and the objects that they share.
func (w *world) settle() (red, blue things) {
	w.must("", "nvmf_create_transport", p{"trtype": "TCP"})
	red, blue = w.populate("red"), w.populate("blue")
	w.must("", "iscsi_create_portal_group", p{"tag": 1, "portals": []any{p{"host": "127.0.0.1", "port": "3260"}}})
	w.must("", "iscsi_create_initiator_group", p{"tag": 1, "initiators": []any{"ANY"}, "netmasks": []any{"ANY"}})
	for _, x := range []things{red, blue} {
		w.must("", "iscsi_create_target_node", p{
			"name": x.iqn, "alias_name": "a", "pg_ig_maps": []any{p{"pg_tag": 1, "ig_tag": 1}},
			"luns": []any{p{"bdev_name": x.malloc, "lun_id": 0}}, "queue_depth": 8,
		})
	}
	return red, blue
}

func (w *world) field(method string, params p, name string) string {
	var list []map[string]any
	require.NoError(w.t, json.Unmarshal(w.must("", method, params), &list))
	require.Len(w.t, list, 1)
	return fmt.Sprint(list[0][name])
}
