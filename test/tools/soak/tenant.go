package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A tenant owns one lvstore, and records which volumes must be in it.
type tenant struct {
	testbed *testbed
	name    string
	user    string
	clients []*client // the workers take turns using them

	mu      sync.Mutex
	volumes map[string]existence // by lvol name
	next    int
}

// An existence determines whether a volume must exist.
type existence int

const (
	absent existence = iota
	present
	unknown // the response to its creation or deletion was lost
)

func newTenant(w *testbed, i int) *tenant {
	name := fmt.Sprintf("team-%d", i)
	return &tenant{testbed: w, name: name, user: "csi-of-" + name, volumes: map[string]existence{}}
}

func (t *tenant) connect() { t.clients = t.testbed.clients(t.user, "127.0.0.1") }

func (t *tenant) lvstore() string { return "lvs-" + t.name }

// furnish makes a newly started target load the tenant's lvstore. At the first start, it creates
// the lvstore.
func (t *tenant) furnish(ctx context.Context, target *spdkrpc.Client) error {
	media := filepath.Join(t.testbed.dir, t.name+".img")
	_, err := os.Stat(media)
	first := err != nil
	if first {
		if err := os.WriteFile(media, nil, 0o600); err != nil {
			return err
		}
		if err := os.Truncate(media, 2<<30); err != nil {
			return err
		}
	}
	if _, err := target.BdevAIOCreate(ctx, spdkrpc.BdevAIOCreateParams{Name: "aio-" + t.name, Filename: media, BlockSize: new(uint32(4096))}); err != nil {
		return err
	}
	if first {
		_, err := target.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "aio-" + t.name, LvsName: t.lvstore(), ClusterSz: new(uint32(1 << 20))})
		return err
	}
	for {
		stores, err := target.BdevLvolGetLvstores(ctx, spdkrpc.BdevLvolGetLvstoresParams{LvsName: new(t.lvstore())})
		if err == nil && len(stores) == 1 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the restarted target did not load %s: %w", t.lvstore(), errors.Join(err, ctx.Err()))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// work creates, uses and deletes volumes until ctx ends.
func (t *tenant) work(ctx context.Context, worker int) {
	for ctx.Err() == nil {
		t.mu.Lock()
		t.next++
		name := fmt.Sprintf("%s-%d-%d", t.name, worker, t.next)
		t.mu.Unlock()
		t.life(t.clients[worker%len(t.clients)], name)
		time.Sleep(time.Duration(rand.N(5)) * time.Millisecond)
	}
}

// life creates, lists and exports one volume, and in most cases deletes it. It checks each
// response.
func (t *tenant) life(c *client, name string) {
	alias := t.lvstore() + "/" + name
	made := c.call("bdev_lvol_create", params{"lvs_name": t.lvstore(), "lvol_name": name, "size_in_mib": 2, "thin_provision": true})
	t.know(name, made, present)
	if t.expectDone(made); !made.ok() {
		return
	}
	uuid, _ := made.result.(string)
	t.expect(made, "a UUID", len(uuid) == 36)

	t.expectVolume(c.call("bdev_get_bdevs", params{"name": alias}), alias, uuid)
	t.expectVolume(c.call("bdev_get_bdevs", params{"name": uuid}), alias, uuid)
	t.expectOwn(c.call("bdev_lvol_get_lvols", nil))
	t.expectForeign(c)

	nqn := "nqn.2026-11.io.spdkgate.soak:" + t.name + "-" + name
	export := c.call("nvmf_create_subsystem", params{"nqn": nqn, "serial_number": name[max(0, len(name)-20):], "allow_any_host": false})
	if export.ok() {
		t.expectDone(c.call("nvmf_subsystem_add_ns", params{"nqn": nqn, "namespace": map[string]any{"bdev_name": alias}}))
		t.expectDone(c.call("nvmf_delete_subsystem", params{"nqn": nqn}))
	}
	t.expectDone(export)

	if rand.N(20) == 0 && t.kept() < 50 {
		return // this volume is kept; recount looks for it
	}
	gone := c.call("bdev_lvol_delete", params{"name": uuid})
	t.know(name, gone, absent)
	t.expectDone(gone)
}

// know records the outcome of a call that creates or deletes the named volume.
func (t *tenant) know(name string, r reply, then existence) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case r.ok():
		t.volumes[name] = then
	case !r.notExecuted():
		t.volumes[name] = unknown
	}
}

func (t *tenant) kept() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.volumes {
		if p == present {
			n++
		}
	}
	return n
}

func (t *tenant) expect(r reply, expected string, holds bool) {
	if !holds {
		t.testbed.book.wrong("%s: %s: not %s: %s", t.user, r.method, expected, r)
	}
}

// expectDone checks that a call succeeded. If the target was killed in the meantime, the call may
// also be lost, or may fail because its object does not exist.
func (t *tenant) expectDone(r reply) {
	t.expect(r, "done", r.ok() || r.lost() || !r.targetUp && r.status == 200)
}

func (t *tenant) expectVolume(r reply, alias, uuid string) {
	if !r.ok() {
		t.expectDone(r)
		return
	}
	list, _ := r.result.([]any)
	good := len(list) == 1
	if good {
		bdev, _ := list[0].(map[string]any)
		aliases, _ := bdev["aliases"].([]any)
		good = bdev["name"] == uuid && slices.Contains(aliases, any(alias))
	}
	t.expect(r, "the volume "+alias, good)
}

// expectOwn checks that a list contains only the tenant's volumes.
func (t *tenant) expectOwn(r reply) {
	list, _ := r.result.([]any)
	for _, item := range list {
		lvol, _ := item.(map[string]any)
		name, _ := lvol["name"].(string)
		alias, _ := lvol["alias"].(string)
		t.expect(r, "only its own", strings.HasPrefix(name, t.name+"-") && strings.HasPrefix(alias, t.lvstore()+"/"))
	}
	t.expect(r, "a list", r.ok() || r.lost())
}

// expectForeign calls methods on another tenant's lvstore and volume, which must appear not to
// exist.
func (t *tenant) expectForeign(c *client) {
	other := t.testbed.tenantsOf[rand.N(len(t.testbed.tenantsOf))]
	if other == t {
		return
	}
	r := c.call("bdev_lvol_get_lvols", params{"lvs_name": other.lvstore()})
	t.expect(r, "hidden", r.lost() || r.status == 200 && r.code == -19)
	other.mu.Lock()
	var name string
	for name = range other.volumes {
		break
	}
	other.mu.Unlock()
	r = c.call("bdev_lvol_delete", params{"name": other.lvstore() + "/" + name})
	t.expect(r, "refused", r.lost() || r.status == 200 && r.code == -19)
}

// recount compares the volumes in each lvstore with those that must exist.
func (w *testbed) recount(ctx context.Context) error {
	socket := spdkrpc.NewSocket(w.socket)
	defer func() { _ = socket.Close() }()
	for _, t := range w.tenantsOf {
		lvols, err := spdkrpc.NewClient(socket).BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{LvsName: new(t.lvstore())})
		if err != nil {
			return fmt.Errorf("recount: %w", err)
		}
		there := map[string]int{}
		for _, l := range lvols {
			there[l.Name]++
		}
		for name, p := range t.volumes {
			if p == present && there[name] != 1 {
				w.book.wrong("volume %s/%s exists %d times: it was created and not deleted", t.lvstore(), name, there[name])
			}
			if p == absent && there[name] != 0 {
				w.book.wrong("volume %s/%s exists: it was deleted", t.lvstore(), name)
			}
			delete(there, name)
		}
		for name := range there {
			w.book.wrong("volume %s/%s exists: no tenant created it", t.lvstore(), name)
		}
	}
	return nil
}
