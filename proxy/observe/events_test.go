package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/cert"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/events"
	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// observerOf returns an Observer with settings and events, but without a target.
func observerOf(t *testing.T, change ...func(*config.Config)) *Observer {
	c := config.Default()
	c.Users = []config.User{{Name: "admin", Roles: []string{"admin"}, TokenHashes: []string{"sha256:" + strings.Repeat("0", 64)}}}
	for _, f := range change {
		f(&c)
	}
	settings, err := gate.NewSettings(&c, rpcschema.Default(), nil)
	require.NoError(t, err)
	g := &gate.Gate{}
	g.Apply(settings, c.Limits)
	return New(Options{Gate: g, Events: events.New(100)}, &c, rpcschema.Default())
}

func TestExpiringCertificatesCauseEvents(t *testing.T) {
	for text, at := range map[string]time.Time{
		"": {}, "x expires on": time.Now().Add(expiresSoon - time.Minute), "x expired on": time.Now().Add(-time.Minute),
	} {
		wanted := map[string]events.Event{}
		(&Source{}).expiry(wanted, "x", "object", at)
		e, is := wanted["certificate_expires object"]
		assert.Equal(t, text != "", is)
		assert.Contains(t, e.Text, text)
	}
	wanted := map[string]events.Event{}
	(&Source{}).expiry(wanted, "x", "object", time.Now().Add(expiresSoon+time.Minute))
	assert.Empty(t, wanted)
}

// Conditions begin at 90% and end below 88%. While the target is down, the conditions of lvstores
// and tenants continue, because their state is unknown.
func TestConditionsLastUntilTheirEndIsKnown(t *testing.T) {
	full := func(percent uint64) *figures.Figures {
		return &figures.Figures{Up: true, Stores: []figures.Store{{Name: "lvs0", Clusters: 100, Free: 100 - percent, ClusterSize: 1 << 20}}}
	}
	for name, c := range map[string]struct {
		before []string
		read   *figures.Figures
		after  []string
		types  []string // types of the expected events
	}{
		"begins":              {nil, full(90), []string{"lvstore_full lvs0"}, []string{"lvstore_full"}},
		"below the threshold": {nil, full(89), nil, nil},
		"continues":           {[]string{"lvstore_full lvs0"}, full(88), []string{"lvstore_full lvs0"}, nil},
		"ends":                {[]string{"lvstore_full lvs0"}, full(87), nil, []string{"lvstore_full_over"}},
		"lvstore deleted":     {[]string{"lvstore_full lvs1"}, full(0), nil, []string{"lvstore_full_over"}},
		"quota":               {[]string{"quota_near a"}, full(0), nil, []string{"quota_near_over"}},
		"certificate renewed": {[]string{"certificate_expires server"}, &figures.Figures{}, nil, []string{"certificate_expires_over"}},
		"target down":         {[]string{"lvstore_full lvs0", "quota_near a", targetDownKey}, &figures.Figures{}, []string{"lvstore_full lvs0", "quota_near a", targetDownKey}, nil},
		"target up":           {[]string{startupKey, targetDownKey}, full(0), []string{startupKey, targetDownKey}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := observerOf(t)
			o.Cert = &cert.Shown{}
			o.figures = figures.NewShared(func(context.Context) *figures.Figures { return c.read }, time.Hour, time.Hour)
			for _, key := range c.before {
				o.Events.Begin(key, events.Event{Type: "begun"})
			}
			l := o.Events.Subscribe(0)
			_, _ = l.Take()
			o.Source().LookAtConditions(t.Context())
			assert.Equal(t, c.after, o.Events.Lasting())
			list, _ := l.Take()
			var types []string
			for _, e := range list {
				types = append(types, e.Type)
			}
			assert.Equal(t, c.types, types)
		})
	}
}

// The condition that a tenant has nearly exhausted its quota of bytes or volumes continues until
// the tenant's usage is clearly lower.
func TestNearlyExhaustedQuotasCauseEvents(t *testing.T) {
	const gib = uint64(bytesInGiB)
	o := observerOf(t, func(c *config.Config) {
		c.Tenants = map[string]config.Tenant{
			"bytes": {LVStores: []string{"lvs-b"}, Quota: config.Quota{GiB: new(10)}}, "volumes": {LVStores: []string{"lvs-v"}, Quota: config.Quota{Volumes: new(10)}}, "free": {LVStores: []string{"lvs-f"}},
		}
	})
	w := o.Source()
	for _, c := range []struct {
		store string
		n     int
		size  uint64
		limit float64
		want  map[string]string
	}{
		{"lvs-b", 1, 9 * gib, 0.9, map[string]string{"quota_near bytes": "uses 9 of 10 GiB"}},
		{"lvs-b", 1, 9*gib - 1, 0.9, nil},
		{"lvs-b", 3, 3 * gib, 0.9, map[string]string{"quota_near bytes": "uses 9 of 10 GiB"}},
		{"lvs-b", 100, 0, 0.9, nil},
		{"lvs-v", 9, gib, 0.9, map[string]string{"quota_near volumes": "uses 9 of 10 volumes"}},
		{"lvs-v", 8, 1000 * gib, 0.9, nil},
		{"lvs-f", 1000, 1000 * gib, 0.9, nil},
		{"other", 1000, 1000 * gib, 0.9, nil},
	} {
		read := &figures.Figures{}
		for range c.n {
			read.Volumes = append(read.Volumes, figures.Volume{Store: c.store, Size: c.size})
		}
		wanted := map[string]events.Event{}
		w.quotas(wanted, func(string) float64 { return c.limit }, read)
		assert.ElementsMatch(t, slices.Collect(maps.Keys(c.want)), slices.Collect(maps.Keys(wanted)), "%+v", c)
		for key, text := range c.want {
			assert.Contains(t, wanted[key].Text, text)
			assert.Equal(t, events.Scope{Kind: "tenant", Name: wanted[key].Object}, wanted[key].Scope)
		}
	}
}

// A volume with an unknown name belongs to no tenant, even if a tenant's glob matches its UUID.
func TestUnknownVolumesHaveNoOwner(t *testing.T) {
	o := observerOf(t)
	l := o.Events.Subscribe(0)
	w := &Source{observer: o, volumes: map[string]string{"be5c5ef7-e10e-4084-87bf-c37a86bd81d8": "lvs0/v0"}}
	unknown := func(context.Context, string, map[string]any) (json.RawMessage, error) { return nil, gate.ErrGone }
	w.publish(t.Context(), unknown, []spdkrpc.NotifyEvent{
		{Type: "bdev_register", Ctx: "cff852b5-571c-4005-981c-fbb661e1a399"}, {Type: "bdev_unregister", Ctx: "be5c5ef7-e10e-4084-87bf-c37a86bd81d8"},
		{Type: "bdev_register", Ctx: "m0"}, {Type: "fsdev_register", Ctx: "m1"},
	})
	list, _ := l.Take()
	require.Len(t, list, 4)
	for i, owner := range []string{"", "lvs0/v0", "m0", ""} {
		assert.Equal(t, owner, list[i].Scope.Name, i)
	}
}

// A new volume is named by its alias. Only the aliases of volumes show who owns them.
func TestNewVolumesAreNamedByTheirAlias(t *testing.T) {
	const id = "cff852b5-571c-4005-981c-fbb661e1a399"
	for response, name := range map[string]string{
		`[{"aliases":["lvs0/v0"],"driver_specific":{"lvol":{}}}]`:     "lvs0/v0",
		`[{"aliases":["lvs0/v0","x"],"driver_specific":{"lvol":{}}}]`: "lvs0/v0",
		`[{"aliases":[],"driver_specific":{"lvol":{}}}]`:              "",
		`[{"aliases":["lvs0/v0"],"driver_specific":{"aio":{}}}]`:      "",
		`[{"aliases":["lvs0/v0"],"driver_specific":{"lvol":{}}},{}]`:  "",
		`[]`: "",
		`{}`: "",
	} {
		o := observerOf(t)
		l, w := o.Events.Subscribe(0), &Source{observer: o, volumes: map[string]string{}}
		ask := func(_ context.Context, method string, params map[string]any) (json.RawMessage, error) {
			assert.Equal(t, "bdev_get_bdevs", method)
			assert.Equal(t, map[string]any{"name": id}, params)
			return json.RawMessage(response), nil
		}
		w.publish(t.Context(), ask, []spdkrpc.NotifyEvent{{Type: "bdev_register", Ctx: id}})
		list, _ := l.Take()
		require.Len(t, list, 1)
		assert.Equal(t, name, list[0].Scope.Name, response)
		if name != "" {
			assert.Equal(t, "volume lvs0/v0 ("+id+") was added", list[0].Text)
		}
	}
}

// Each notification is read once, even if an earlier read found none.
func TestNotificationsAreReadOnce(t *testing.T) {
	sim, err := spdktest.Start(spdktest.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sim.Close()) })
	caller := spdkrpc.NewSocket(sim.Socket())
	t.Cleanup(func() { assert.NoError(t, caller.Close()) })
	o := observerOf(t)
	o.Gate.Target = target.New(target.Config{Socket: sim.Socket()})
	t.Cleanup(func() { assert.NoError(t, o.Gate.Target.Close()) })
	l, w := o.Events.Subscribe(0), &Source{observer: o, phase: target.Runtime}
	for i, name := range []string{"", "m0", "", "m1", ""} {
		if name != "" {
			_, err := spdkrpc.NewClient(caller).BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: &name, NumBlocks: 8, BlockSize: 512})
			require.NoError(t, err)
		}
		w.readNotifications(t.Context())
		list, _ := l.Take()
		var objects []string
		for _, e := range list {
			objects = append(objects, e.Object)
		}
		assert.Equal(t, map[bool][]string{false: {name}}[name == ""], objects, i)
	}
}

// A target keeps only its most recent notifications. Notifications that are lost in between are
// reported as a gap.
func TestLostNotificationsAppearAsAGap(t *testing.T) {
	sim, err := spdktest.Start(spdktest.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sim.Close()) })
	caller := spdkrpc.NewSocket(sim.Socket())
	t.Cleanup(func() { assert.NoError(t, caller.Close()) })
	o := observerOf(t)
	o.Events = events.New(2000)
	o.Gate.Target = target.New(target.Config{Socket: sim.Socket()})
	t.Cleanup(func() { assert.NoError(t, o.Gate.Target.Close()) })
	l, w := o.Events.Subscribe(0), &Source{observer: o, phase: target.Runtime}
	w.readNotifications(t.Context())
	for i := range 1024 + 3 {
		_, err := spdkrpc.NewClient(caller).BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new(fmt.Sprintf("m%d", i)), NumBlocks: 8, BlockSize: 512})
		require.NoError(t, err)
	}
	w.readNotifications(t.Context())
	list, _ := l.Take()
	require.NotEmpty(t, list)
	assert.Equal(t, events.Gap, list[0].Type)
	assert.Equal(t, "3 notifications of the target were lost: it keeps only the last ones", list[0].Text)
	assert.Equal(t, "m3", list[1].Object)
}
