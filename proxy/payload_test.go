package proxy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A hostileTenant makes random calls and writes random lvstores to its volumes. Like an attacker
// who has learned them, it uses all existing UUIDs.
type hostileTenant struct {
	*bench
	random  *rand.Rand
	log     []string // actions so far
	victim  string
	known   []string // UUIDs of current and former bdevs
	volumes []string // the tenant's current and former volumes
}

// try makes a call, and returns its result, or nil if it failed.
func (h *hostileTenant) try(user, method string, params map[string]any) json.RawMessage {
	text, err := json.Marshal(params)
	require.NoError(h.t, err)
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, text)
	g := h.do("POST", "/", user, adminPassword, strings.NewReader(body))
	var response struct{ Result json.RawMessage }
	require.NoError(h.t, json.Unmarshal([]byte(g.body), &response), g.body)
	h.log = append(h.log, fmt.Sprintf("%s %s %s: %.300s", user, method, text, g.body))
	return response.Result
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// pickLvstore returns an lvstore to be written to a volume.
func (h *hostileTenant) pickLvstore() spdktest.WrittenStore {
	w := spdktest.WrittenStore{Name: pick(h.random, "inner", "lvs-a", "lvs-b", "deeper", "new")}
	for i := range h.random.IntN(4) {
		l := spdktest.WrittenLvol{Name: fmt.Sprint(pick(h.random, "v", "secret", "n"), i)}
		if h.random.IntN(2) == 0 {
			l.UUID = pick(h.random, h.known...)
		}
		if h.random.IntN(2) == 0 {
			l.External = pick(h.random, h.known...)
		}
		w.Lvols = append(w.Lvols, l)
	}
	return w
}

func (h *hostileTenant) step(i int) {
	r, target := h.random, ""
	if target = pick(r, h.known...); r.IntN(2) == 0 {
		target = pick(r, h.volumes...)
	}
	nqn := "nqn.2020-04.io.spdk.csi:uuid:" + target
	name := fmt.Sprint("x", i)
	var made json.RawMessage
	switch r.IntN(11) {
	case 0, 1:
		written, volume := h.pickLvstore(), pick(r, h.volumes...)
		err := h.target.WriteStore(volume, written)
		h.log = append(h.log, fmt.Sprintf("host writes %+v into %s: %v", written, volume, err))
		made = h.try(teamA, "bdev_lvol_snapshot", map[string]any{"lvol_name": volume, "snapshot_name": name})
	case 2:
		made = h.try(teamA, "bdev_lvol_create", map[string]any{"lvs_name": pick(r, "lvs-a", "lvs-a", "inner", "lvs-b"), "lvol_name": name, "size_in_mib": 64, "thin_provision": true})
	case 3:
		made = h.try(teamA, "bdev_lvol_snapshot", map[string]any{"lvol_name": target, "snapshot_name": name})
	case 4:
		made = h.try(teamA, "bdev_lvol_clone", map[string]any{"snapshot_name": target, "clone_name": name})
	case 5:
		h.try(teamA, "bdev_lvol_delete", map[string]any{"name": pick(r, target, "inner/v0", "lvs-b/secret", "inner/secret0")})
	case 6:
		h.try(teamA, "nvmf_create_subsystem", map[string]any{"nqn": nqn, "serial_number": "s"})
	case 7:
		h.try(teamA, "nvmf_subsystem_add_ns", map[string]any{"nqn": nqn, "namespace": map[string]any{"bdev_name": pick(r, target, pick(r, h.known...))}})
	case 8:
		h.try(teamA, "nvmf_delete_subsystem", map[string]any{"nqn": nqn})
	case 9:
		h.try(teamA, "bdev_get_bdevs", map[string]any{"name": target})
	case 10:
		h.try(teamA, "bdev_lvol_resize", map[string]any{"name": target, "size_in_mib": 96})
	}
	var id string
	if json.Unmarshal(made, &id) == nil && id != "" {
		h.known, h.volumes = append(h.known, id), append(h.volumes, id)
	}
}

// check fails the test if the tenant has gained access to anything, or if another tenant has lost
// anything. loaded means that the target loads lvstores in volumes; these lvstores may claim other
// tenants' volumes.
func (h *hostileTenant) check(loaded bool) {
	type info struct {
		Name     string
		Aliases  []string
		Specific struct {
			Lvol struct {
				Base string `json:"base_bdev"`
			}
		} `json:"driver_specific"`
	}
	list := func(user string) (bdevs []info) {
		require.NoError(h.t, json.Unmarshal(h.try(user, "bdev_get_bdevs", map[string]any{}), &bdevs))
		return bdevs
	}
	own := map[string]bool{}
	for _, b := range list("admin") {
		nested := b.Specific.Lvol.Base != "" && b.Specific.Lvol.Base != "Basea" && b.Specific.Lvol.Base != "Baseb"
		require.True(h.t, loaded || !nested, "%s is loaded", b.Aliases)
		own[b.Name] = b.Specific.Lvol.Base == "Basea"
	}
	for _, b := range list(teamA) {
		require.True(h.t, own[b.Name], "%v is listed", b)
	}
	var subsystems []struct {
		NQN        string
		Namespaces []struct {
			Bdev string `json:"bdev_name"`
		}
	}
	require.NoError(h.t, json.Unmarshal(h.try("admin", "nvmf_get_subsystems", map[string]any{}), &subsystems))
	for _, s := range subsystems {
		for _, n := range s.Namespaces {
			require.True(h.t, own[n.Bdev], "%s exports %s", s.NQN, n.Bdev)
		}
	}
	var stores []struct{ Name string }
	require.NoError(h.t, json.Unmarshal(h.try(teamA, "bdev_lvol_get_lvstores", map[string]any{}), &stores))
	require.Equal(h.t, []struct{ Name string }{{"lvs-a"}}, stores)
	if loaded {
		return
	}
	nqn := "nqn.2020-04.io.spdk.csi:uuid:" + h.victim
	require.NotNil(h.t, h.try(teamB, "nvmf_create_subsystem", map[string]any{"nqn": nqn, "serial_number": "s"}))
	require.NotNil(h.t, h.try(teamB, "nvmf_subsystem_add_ns", map[string]any{"nqn": nqn, "namespace": map[string]any{"bdev_name": h.victim}}))
	require.NotNil(h.t, h.try(teamB, "nvmf_delete_subsystem", map[string]any{"nqn": nqn}))
}

// Whatever a tenant writes to its volumes, and whatever calls it makes, it gains nothing and does
// not harm other tenants. If the test fails, it logs all calls. To repeat them with other UUIDs,
// pass the seed: go test -run TestHostileTenantDoesNotHarmOthers/loaded=false/3 ./proxy
func TestHostileTenantDoesNotHarmOthers(t *testing.T) {
	c := newTenantBench(t).config
	for _, loaded := range []bool{false, true} {
		for seed := range uint64(10) {
			t.Run(fmt.Sprintf("loaded=%t/%d", loaded, seed), func(t *testing.T) {
				t.Parallel()
				hostile(t, c, seed, loaded)
			})
		}
	}
}

func hostile(t *testing.T, c *config.Config, seed uint64, loaded bool) {
	b := newBenchWith(t, spdktest.Options{Release: rpcschema.MustRelease("v26.05"), ExamineListed: !loaded}, func(used *config.Config) {
		used.Users, used.Tenants, used.Roles = c.Users, c.Tenants, c.Roles
		used.Target.AcceptLoadingWhatHostsWrite = loaded
	})
	h := &hostileTenant{bench: b, random: rand.New(rand.NewPCG(seed, 1))}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s", seed, strings.Join(h.log, "\n"))
		}
	})
	for _, team := range []string{"a", "b"} {
		h.try("admin", "bdev_malloc_create", map[string]any{"name": "Base" + team, "num_blocks": 1 << 19, "block_size": 4096})
		h.try("admin", "bdev_lvol_create_lvstore", map[string]any{"bdev_name": "Base" + team, "lvs_name": "lvs-" + team})
	}
	var own, snapshot string
	create := func(user, method string, params map[string]any, id *string) {
		require.NoError(t, json.Unmarshal(h.try(user, method, params), id), method)
	}
	create(teamB, "bdev_lvol_create", map[string]any{"lvs_name": "lvs-b", "lvol_name": "secret", "size_in_mib": 64}, &h.victim)
	create(teamB, "bdev_lvol_snapshot", map[string]any{"lvol_name": h.victim, "snapshot_name": "snap"}, &snapshot)
	create(teamA, "bdev_lvol_create", map[string]any{"lvs_name": "lvs-a", "lvol_name": "own", "size_in_mib": 64}, &own)
	h.known, h.volumes = []string{h.victim, snapshot, own}, []string{own}
	for i := range 60 {
		h.step(i)
		h.check(loaded)
	}
	if !loaded {
		require.NotNil(t, h.try(teamB, "bdev_lvol_delete", map[string]any{"name": h.victim}))
		require.NotNil(t, h.try(teamB, "bdev_lvol_delete", map[string]any{"name": snapshot}))
	}
}
