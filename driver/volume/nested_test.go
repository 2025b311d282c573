package volume

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// nest creates an lvstore on a bdev, with a volume in it, as if a host had written the lvstore and
// the target had loaded it.
func (b *testService) nest(t *testing.T, bdev, store, lvol string) (id string) {
	t.Helper()
	_, err := b.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: bdev, LvsName: store, ClusterSz: new(uint32(1 << 20))})
	require.NoError(t, err)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		assert.NoError(t, b.rpc.BdevLvolDeleteLvstore(ctx, spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: &store}))
	})
	id, err = b.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: lvol, LvsName: &store, SizeInMiB: 1, ThinProvision: new(true)})
	require.NoError(t, err)
	return id
}

// TestNestedLvstoreIsNotUsed creates lvstores on logical volumes, directly and through other bdevs.
func TestNestedLvstoreIsNotUsed(t *testing.T) {
	for name, on := range map[string]func(t *testing.T, b *testService, lvol string) (bdev string){
		"lvol": func(_ *testing.T, _ *testService, lvol string) string { return lvol },
		"passthru of passthru of lvol": func(t *testing.T, b *testService, lvol string) string {
			for _, p := range []struct{ name, base string }{{"below", lvol}, {"above", "below"}} {
				_, err := b.rpc.BdevPassthruCreate(t.Context(), spdkrpc.BdevPassthruCreateParams{Name: p.name, BaseBdevName: p.base})
				require.NoError(t, err)
				ctx := context.WithoutCancel(t.Context())
				t.Cleanup(func() {
					assert.NoError(t, b.rpc.BdevPassthruDelete(ctx, spdkrpc.BdevPassthruDeleteParams{Name: p.name}))
				})
			}
			return "above"
		},
		"split of lvol": func(t *testing.T, b *testService, lvol string) string {
			parts, err := b.rpc.BdevSplitCreate(t.Context(), spdkrpc.BdevSplitCreateParams{BaseBdev: lvol, SplitCount: 1})
			if errors.Is(err, spdkrpc.MethodNotFound) {
				t.Skip("the simulated target has no split bdevs")
			}
			require.NoError(t, err)
			ctx := context.WithoutCancel(t.Context())
			t.Cleanup(func() {
				assert.NoError(t, b.rpc.BdevSplitDelete(ctx, spdkrpc.BdevSplitDeleteParams{BaseBdev: lvol}))
			})
			return parts[0]
		},
		"RAID of lvol": func(t *testing.T, b *testService, lvol string) string {
			err := b.rpc.BdevRAIDCreate(t.Context(), spdkrpc.BdevRAIDCreateParams{Name: "raid", RAIDLevel: "concat", StripSizeKB: new(uint32(64)), BaseBdevs: []string{lvol}})
			if errors.Is(err, spdkrpc.MethodNotFound) {
				t.Skip("the simulated target has no RAIDs")
			}
			require.NoError(t, err)
			ctx := context.WithoutCancel(t.Context())
			t.Cleanup(func() {
				assert.NoError(t, b.rpc.BdevRAIDDelete(ctx, spdkrpc.BdevRAIDDeleteParams{Name: "raid"}))
			})
			return "raid"
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestService(t, export.TCP)
			tenants := b.create(t, "pvc-tenant", 40)
			foreign := b.nest(t, on(t, b, tenants.UUID), "lvs9", "pvc-victim")

			stores, err := b.Stores(t.Context())
			require.NoError(t, err)
			var names []string
			for _, st := range stores {
				names = append(names, st.Name)
			}
			assert.ElementsMatch(t, []string{"lvs0", "lvs1"}, names, "nothing is placed on lvs9")
			_, err = b.Find(t.Context(), stores, Spec{Name: "pvc-victim"})
			require.ErrorIs(t, err, ErrNotFound)
			ids, _, err := b.ListIDs(t.Context(), Page{})
			require.NoError(t, err)
			assert.Equal(t, []string{tenants.UUID}, ids)

			host := export.Host{NQN: "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"}
			for call, err := range map[string]error{
				"get":    second(b.Get(t.Context(), foreign)),
				"export": second(b.Export(t.Context(), foreign, host)),
				"expand": second(b.Expand(t.Context(), foreign, 8*MiB, 0)),
				"clone":  second(b.Clone(t.Context(), Origin{UUID: foreign}, Spec{Name: "pvc-copy", MinBytes: MiB})),
				"delete": b.Delete(t.Context(), foreign),
			} {
				require.ErrorIs(t, err, ErrNested, call)
				assert.ErrorContains(t, err, "docs/target.md", call)
			}
			_, err = b.rpc.BdevGetBdevs(t.Context(), spdkrpc.BdevGetBdevsParams{Name: &foreign})
			require.NoError(t, err, "it was not deleted")

			configured := NewTarget(Config{Config: b.Target.Config.Config, Stores: []string{"lvs0", "lvs9"}}).Service(b.rpc)
			_, err = configured.Stores(t.Context())
			require.ErrorIs(t, err, ErrNested, "an lvstore with a configured name")
			assert.ErrorContains(t, err, `lvs9`)
			require.ErrorIs(t, second(configured.Get(t.Context(), foreign)), ErrNested)
			require.ErrorIs(t, configured.Delete(t.Context(), foreign), ErrNested)
			only := NewTarget(Config{Config: b.Target.Config.Config, Stores: []string{"lvs0", "lvs1"}}).Service(b.rpc)
			_, err = only.Stores(t.Context())
			require.NoError(t, err, "another nested lvstore does not matter")

			nested, err := b.Nested(t.Context())
			require.NoError(t, err)
			found := map[string]string{}
			for _, n := range nested {
				require.ErrorIs(t, n.Why, ErrNested)
				found[n.Name] = n.Kind
			}
			want := map[string]string{"lvs9": "lvstore"}
			if name == "RAID of lvol" {
				want["raid"] = "RAID"
			}
			assert.Equal(t, want, found)
		})
	}
}

// Base bdevs are queried ahead only for the requested lvstore, and only if there are few lvstores.
func TestBasesAreQueriedAheadForFewLvstores(t *testing.T) {
	b := newTestService(t, export.TCP)
	stores, err := b.Stores(t.Context())
	require.NoError(t, err)
	require.Len(t, stores, 2)
	ahead := func(store string) (bases []string) {
		for base, v := range b.askAhead(AskOnce(t.Context()), store) {
			require.NoError(t, v.err)
			bases = append(bases, base)
		}
		return bases
	}
	assert.ElementsMatch(t, []string{stores[0].Base, stores[1].Base}, ahead(""))
	assert.Equal(t, []string{stores[1].Base}, ahead(stores[1].Name))
	assert.Empty(t, ahead("lvs9"))

	more := stores
	for _, id := range []string{"x", "y"} {
		more = append(more, Store{UUID: id, Name: "lvs-" + id, Base: stores[0].Base})
	}
	b.seen.noteStores(more)
	assert.ElementsMatch(t, []string{stores[0].Base, stores[1].Base}, ahead(""), "four lvstores")
	b.seen.noteStores(append(more, Store{UUID: "z", Name: "lvs-z", Base: stores[0].Base}))
	assert.Empty(t, ahead(""), "five lvstores")
	assert.Equal(t, []string{stores[1].Base}, ahead(stores[1].Name))
}

func second[T any](_ T, err error) error { return err }

// An lvstore that a host has written does not replace an lvstore that has been seen before, even if
// it has the same name and UUID.
func TestNestedLvstoreDoesNotReplaceAnother(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	swapped := false
	s := b.Target.Service(spdkrpc.NewClient(rewriting{b.fault, func(method string, text []byte) []byte {
		if method != "bdev_get_bdevs" || !swapped {
			return text
		}
		var infos []spdkrpc.BdevInfo
		require.NoError(t, json.Unmarshal(text, &infos))
		if infos[0].DriverSpecific.Lvol == nil { // the disk is now a logical volume
			infos[0].ProductName = "Logical Volume"
			infos[0].DriverSpecific = spdkrpc.BdevDriverSpecific{Lvol: &spdkrpc.BdevDriverLvol{}}
		}
		text, err := json.Marshal(infos)
		require.NoError(t, err)
		return text
	}}))
	_, err := s.Get(t.Context(), v.UUID)
	require.NoError(t, err)
	_, err = s.Stores(t.Context())
	require.NoError(t, err)
	swapped = true
	require.ErrorIs(t, second(s.Get(t.Context(), v.UUID)), ErrNested)
	require.ErrorIs(t, second(s.Stores(t.Context())), ErrNested)
	require.ErrorIs(t, s.Delete(t.Context(), v.UUID), ErrNested)
	swapped = false
	require.NoError(t, s.Delete(t.Context(), v.UUID))
}

// rewriting is a caller that changes the target's responses.
type rewriting struct {
	spdkrpc.Caller
	rewrite func(method string, text []byte) []byte
}

func (r rewriting) Call(ctx context.Context, method string, params, result any) error {
	var text json.RawMessage
	if err := r.Caller.Call(ctx, method, params, &text); err != nil || result == nil {
		return err
	}
	return json.Unmarshal(r.rewrite(method, text), result)
}

// A proxy that hides base bdevs from a tenant's users must also hide nested lvstores from these
// users.
func TestHiddenBaseBdevsRequireANewerProxy(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	hiding := rewriting{b.fault, func(method string, text []byte) []byte {
		var all []map[string]any
		if method != "bdev_lvol_get_lvstores" && method != "bdev_get_bdevs" || json.Unmarshal(text, &all) != nil {
			return text
		}
		for _, one := range all {
			if _, ok := one["base_bdev"]; ok {
				one["base_bdev"] = ""
			}
			specific, _ := one["driver_specific"].(map[string]any)
			if lvol, ok := specific["lvol"].(map[string]any); ok {
				lvol["base_bdev"] = ""
			}
		}
		text, err := json.Marshal(all)
		require.NoError(t, err)
		return text
	}}
	s := b.Target.Service(spdkrpc.NewClient(hiding))
	require.ErrorIs(t, second(s.Get(t.Context(), v.UUID)), ErrNested)
	assert.ErrorContains(t, second(s.Stores(t.Context())), "upgrade spdk-proxy")

	s = b.Target.Service(spdkrpc.NewClient(informed{hiding, spdkrpc.ProxyTargetInfo{ExaminesVolumes: new(true)}}))
	require.NoError(t, second(s.Get(t.Context(), v.UUID)))
	require.NoError(t, second(s.Stores(t.Context())))

	failing := &drivertest.FirstCall{Caller: informed{hiding, spdkrpc.ProxyTargetInfo{}}, Method: "spdkgate_target_get_info", Before: func(context.Context, any) error {
		return &spdkrpc.Error{Method: "spdkgate_target_get_info", Kind: spdkrpc.Failed, Message: "injected failure"}
	}}
	s = NewTarget(b.Config).Service(spdkrpc.NewClient(failing))
	require.ErrorContains(t, second(s.Stores(t.Context())), "injected failure", "it is unknown whether lvstores are hidden")
	require.NoError(t, second(s.Stores(t.Context())))
}

// informed is a caller that responds to spdkgate_target_get_info.
type informed struct {
	spdkrpc.Caller
	info spdkrpc.ProxyTargetInfo
}

func (i informed) Call(ctx context.Context, method string, params, result any) error {
	if method == "spdkgate_target_get_info" {
		*result.(*spdkrpc.ProxyTargetInfo) = i.info
		return nil
	}
	return i.Caller.Call(ctx, method, params, result)
}

func TestBasesOfBdevsAreFound(t *testing.T) {
	for text, want := range map[string]struct {
		bases []string
		kind  basesKind
	}{
		`{"product_name": "Logical Volume", "driver_specific": {"lvol": {}}}`:                                                      {nil, onLvstore},
		`{"product_name": "Malloc disk", "driver_specific": {}}`:                                                                   {nil, onDevice},
		`{"product_name": "NVMe disk", "driver_specific": {"nvme": []}}`:                                                           {nil, onDevice},
		`{"product_name": "AIO disk", "driver_specific": {"aio": {}}}`:                                                             {nil, onDevice},
		`{"product_name": "something new", "driver_specific": {}}`:                                                                 {nil, onUnknown},
		`{"product_name": "something new", "driver_specific": {"new": {"base_bdev": "x"}}}`:                                        {nil, onUnknown},
		`{"product_name": "crypto", "driver_specific": {"crypto": {"base_bdev_name": "a"}}}`:                                       {[]string{"a"}, onBdevs},
		`{"product_name": "delay", "driver_specific": {"delay": {"base_bdev_name": "a"}}}`:                                         {[]string{"a"}, onBdevs},
		`{"product_name": "Error Injection Disk", "driver_specific": {"error_disk": {"base_bdev": "a"}}}`:                          {[]string{"a"}, onBdevs},
		`{"product_name": "Split Disk", "driver_specific": {"split": {"base_bdev": "a"}}}`:                                         {[]string{"a"}, onBdevs},
		`{"product_name": "GPT Disk", "driver_specific": {"gpt": {"base_bdev": "a"}}}`:                                             {[]string{"a"}, onBdevs},
		`{"product_name": "zone_block", "driver_specific": {"zoned_block": {"base_bdev": "a"}}}`:                                   {[]string{"a"}, onBdevs},
		`{"product_name": "FTL disk", "driver_specific": {"ftl": {"base_bdev": "a", "cache": "b"}}}`:                               {[]string{"a", "b"}, onBdevs},
		`{"product_name": "compress", "driver_specific": {"compress": {"base_bdev_name": "a"}}}`:                                   {[]string{"a"}, onBdevs},
		`{"product_name": "SPDK OCF", "driver_specific": {"cache_device": "b", "core_device": "a", "mode": "wb"}}`:                 {[]string{"a", "b"}, onBdevs},
		`{"product_name": "Raid Volume", "driver_specific": {"raid": {"base_bdevs_list": [{"name": "a"}, {"name": null}, null]}}}`: {[]string{"a"}, onBdevs},
		`{"product_name": "Raid Volume", "driver_specific": {"raid": {"base_bdevs_list": ["a", null, "b"]}}}`:                      {[]string{"a", "b"}, onBdevs},
		`{"product_name": "Raid Volume", "driver_specific": {"raid": {"base_bdevs_list": [null]}}}`:                                {nil, onUnknown},
	} {
		var info spdkrpc.BdevInfo
		require.NoError(t, json.Unmarshal([]byte(text), &info), text)
		bases, kind := basesIn(info)
		assert.Equal(t, want.kind, kind, text)
		assert.ElementsMatch(t, want.bases, bases, text)
	}
}
