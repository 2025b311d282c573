package tenancy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A gambler makes random calls as red. Some calls get no response, and are executed at a random
// later time.
type gambler struct {
	*world
	script []byte
	late   []lateCall
	clock  time.Time
}

type lateCall struct {
	sent
	until time.Time
}

// next returns the script's next number, below n.
func (g *gambler) next(n int) int {
	if len(g.script) == 0 {
		return 0
	}
	b := g.script[0]
	g.script = g.script[1:]
	return int(b) % n
}

// some returns one of a few volume names. The volume may or may not exist.
func (g *gambler) some() string { return fmt.Sprint("v", g.next(3)) }

func (g *gambler) call(method string, params p) {
	m, _ := rpcschema.Default().Method(method)
	params, err := decoded(params)
	require.NoError(g.t, err)
	grant, err := g.tenancy.Of("alice").Admit(g.t.Context(), m, params, g.ask)
	if err != nil {
		var over *QuotaError
		assert.ErrorAs(g.t, err, &over, "%s %v", method, params)
		return
	}
	defer grant.Close()
	if g.next(4) == 0 {
		g.sent = append(g.sent, sent{"lost: " + method, grant.Params})
		g.late = append(g.late, lateCall{sent{method, grant.Params}, g.clock.Add(unansweredKeep)})
		_, err = grant.Answer(g.t.Context(), nil, &spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown})
		assert.ErrorIs(g.t, err, spdkrpc.OutcomeUnknown)
		return
	}
	result, err := g.raw(g.t.Context(), method, grant.Params)
	g.sent = append(g.sent, sent{fmt.Sprint(method, " ", err), grant.Params})
	_, _ = grant.Answer(g.t.Context(), result, err)
}

// step performs the script's next step.
func (g *gambler) step() {
	subsystem := func() string { return "nqn.2016-06.io.spdk:red-" + g.some() }
	switch g.next(16) {
	case 0, 1:
		g.call("bdev_lvol_create", p{"lvol_name": g.some(), "size_in_mib": 4 * (1 + g.next(12)), "lvs_name": "lvs-red", "thin_provision": true})
	case 2, 3, 4:
		g.call("bdev_lvol_resize", p{"name": "lvs-red/" + g.some(), "size_in_mib": 4 * (1 + g.next(12))})
	case 5:
		g.call("bdev_lvol_delete", p{"name": "lvs-red/" + g.some()})
	case 6:
		g.call("bdev_lvol_snapshot", p{"lvol_name": "lvs-red/" + g.some(), "snapshot_name": g.some()})
	case 7:
		g.call("bdev_lvol_clone", p{"snapshot_name": "lvs-red/" + g.some(), "clone_name": g.some()})
	case 8, 9: // execute a call without a response after all
		if n := len(g.late); n > 0 {
			i := g.next(n)
			c := g.late[i]
			g.late = append(g.late[:i], g.late[i+1:]...)
			if g.clock.Before(c.until) {
				g.sent = append(g.sent, sent{"late: " + c.method, c.params})
				_, _ = g.raw(g.t.Context(), c.method, c.params)
			}
		}
	case 10:
		g.clock = g.clock.Add(time.Duration(1+g.next(120)) * time.Second)
	case 11:
		g.call("nvmf_create_subsystem", p{"nqn": subsystem()})
	case 12:
		g.call("nvmf_delete_subsystem", p{"nqn": subsystem()})
	case 13:
		g.call("nvmf_subsystem_add_host", p{"nqn": subsystem(), "host": hostOf(g.next(3))})
	case 14:
		g.call("nvmf_subsystem_remove_host", p{"nqn": subsystem(), "host": hostOf(g.next(3))})
	case 15:
		g.call("nvmf_subsystem_add_listener", p{"nqn": subsystem(), "listen_address": redAddress})
	}
}

// uses returns the amount that red uses, as seen by an administrator.
func (g *gambler) uses() (used amount) {
	var list []spdkrpc.BdevInfo
	require.NoError(g.t, json.Unmarshal(g.must("", "bdev_get_bdevs", nil), &list))
	for _, b := range list {
		if b.ProductName == "Logical Volume" {
			used = used.plus(amount{bytes: uint64(b.BlockSize) * b.NumBlocks, volumes: 1})
		}
	}
	for _, s := range g.subsystems() {
		used = used.plus(amount{subsystems: 1, hosts: uint64(len(s.Hosts)), listeners: uint64(len(s.ListenAddresses))})
	}
	return used
}

// oneTarget is shared by all runs of a fuzzing process.
var oneTarget = sync.OnceValues(func() (*spdktest.Target, error) {
	return spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease("v26.05")})
})

// gamble executes a script, and checks the quota after every step.
func gamble(t *testing.T, target *spdktest.Target, script []byte) {
	quota := Quota{Bytes: 64 * mib, Volumes: 5, Subsystems: 2, Hosts: 3, Listeners: 1}
	w := worldOf(t, target.Socket(), target.Release(), func(red *Tenant) { red.Quota = quota })
	_, _ = w.call("", "bdev_lvol_delete_lvstore", p{"lvs_name": "lvs-red"})
	_, _ = w.call("", "bdev_malloc_delete", p{"name": "Base"})
	_, _ = w.call("", "nvmf_create_transport", p{"trtype": "TCP"})
	for _, s := range w.subsystems() {
		w.must("", "nvmf_delete_subsystem", p{"nqn": s.NQN})
	}
	w.must("", "bdev_malloc_create", p{"name": "Base", "num_blocks": 131072, "block_size": 4096})
	w.must("", "bdev_lvol_create_lvstore", p{"bdev_name": "Base", "lvs_name": "lvs-red"})
	g := &gambler{world: w, script: script, clock: time.Now()}
	defer func(before func() time.Time) { now = before }(now)
	now = func() time.Time { return g.clock }
	within := func(when string) {
		if err := quota.allows("red", amount{}, g.uses()); err != nil {
			t.Fatalf("%s: %v\n%s", when, err, g.told())
		}
	}
	for len(g.script) > 0 {
		g.step()
		within("on the way")
	}
	// Execute the calls without a response, starting with the last.
	for _, c := range slices.Backward(g.late) {
		if g.clock.Before(c.until) {
			_, _ = g.raw(t.Context(), c.method, c.params)
		}
		within("late")
	}
}

// told returns a description of the steps so far.
func (g *gambler) told() string {
	var b strings.Builder
	for _, c := range g.sent {
		fmt.Fprintln(&b, c.method, c.params)
	}
	return b.String()
}

// FuzzQuota checks that a tenant's random calls never exceed the quota, even if some calls are
// executed long after their callers have given up.
func FuzzQuota(f *testing.F) {
	r := rand.New(rand.NewPCG(4, 10))
	for range 40 {
		script := make([]byte, 20+r.IntN(180))
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		f.Add(script)
	}
	target, err := oneTarget()
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, script []byte) { gamble(t, target, script[:min(len(script), 200)]) })
}

// A call without a response counts against the quota as if its volume could still shrink or grow
// before the call is executed.
func TestCallsWithoutResponseCountAgainstTheQuota(t *testing.T) {
	target, err := oneTarget()
	require.NoError(t, err)
	const create, resize, snapshot, answered, lost, late = "\x00", "\x02", "\x06", "\x01", "\x00", "\x08"
	size := func(mib int) string { return string(rune(mib/4 - 1)) }
	for name, script := range map[string]string{
		"a volume grows after it was shrunk": create + "\x00" + size(16) + answered + resize + "\x00" + size(40) + lost +
			resize + "\x00" + size(4) + answered + create + "\x01" + size(32) + answered + late + "\x00",
		"a late call grows a volume that has shrunk in the meantime": create + "\x00" + size(40) + answered + resize + "\x00" + size(32) + lost +
			resize + "\x00" + size(4) + answered + create + "\x01" + size(48) + answered + late + "\x00",
		"a snapshot of a volume that has grown in the meantime": create + "\x00" + size(4) + answered + snapshot + "\x00\x02" + lost +
			resize + "\x00" + size(28) + answered + create + "\x01" + size(24) + answered + late + "\x00",
		"a snapshot of a volume that may have grown": create + "\x00" + size(4) + answered + resize + "\x00" + size(32) + lost +
			snapshot + "\x00\x02" + lost + create + "\x01" + size(24) + answered + late + "\x00" + late + "\x00",
	} {
		t.Run(name, func(t *testing.T) { gamble(t, target, []byte(script)) })
	}
}
