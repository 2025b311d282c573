package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	redStore  = "aaaaaaaa-0000-4000-8000-00000000000a"
	blueStore = "bbbbbbbb-0000-4000-8000-00000000000b"
)

// lvolUUID returns the UUID of volume i in an lvstore.
func lvolUUID(store string, i int) string {
	return fmt.Sprintf("%s-0000-4000-9000-%012x", store[:8], i)
}

// lvolBdev returns a volume as v26.05 lists it.
func lvolBdev(store, lvs string, i int) string {
	id := lvolUUID(store, i)
	return fmt.Sprintf(`{"name":"%s","aliases":["%s/vol%d"],"product_name":"Logical Volume","block_size":4096,"num_blocks":2048,"preferred_write_alignment":1024,`+
		`"preferred_write_granularity":1024,"optimal_write_size":1024,"preferred_unmap_alignment":1024,"preferred_unmap_granularity":1024,"uuid":"%s",`+
		`"assigned_rate_limits":{"rw_ios_per_sec":0,"rw_mbytes_per_sec":0,"r_mbytes_per_sec":0,"w_mbytes_per_sec":0},"claimed":false,"zoned":false,`+
		`"supported_io_types":{"read":true,"write":true,"unmap":true,"flush":false,"reset":true,"nvme_admin":false,"nvme_io":false,"nvme_io_md":false,"write_zeroes":true,`+
		`"zcopy":false,"get_zone_info":false,"zone_management":false,"zone_append":false,"compare":false,"compare_and_write":false,"abort":false,"seek_hole":true,"seek_data":true,"copy":false,"nvme_iov_md":false},`+
		`"driver_specific":{"lvol":{"lvol_store_uuid":"%s","base_bdev":"Nvme0n1","thin_provision":true,"num_allocated_clusters":0,"snapshot":false,"clone":false,"esnap_clone":false}}}`,
		id, lvs, i, id, store)
}

// lvolItem returns a volume as bdev_lvol_get_lvols lists it.
func lvolItem(store, lvs string, i int) string {
	return fmt.Sprintf(`{"alias":"%s/vol%d","uuid":"%s","name":"vol%d","is_thin_provisioned":true,"is_snapshot":false,"is_clone":false,"is_esnap_clone":false,"is_degraded":false,`+
		`"num_allocated_clusters":0,"lvs":{"name":"%s","uuid":"%s"}}`, lvs, i, lvolUUID(store, i), i, lvs, store)
}

// listOf returns a list of n items, some of which belong to red.
func listOf(n, red int, item func(store, lvs string, i int) string) json.RawMessage {
	items := make([]string, n)
	for i := range items {
		items[i] = item(blueStore, "lvs-blue", i)
		if red > 0 && i%(n/red) == 0 {
			items[i] = item(redStore, "lvs-red", i)
		}
	}
	return json.RawMessage("[" + strings.Join(items, ",") + "]")
}

// BenchmarkCall measures the cost of package tenancy per call, and the number of queries that each
// call causes. On a real target, each query takes up to 4 ms, the interval at which SPDK polls for
// requests.
func BenchmarkCall(b *testing.B) {
	tenancy, err := New([]Tenant{redTenant(), blueTenant()}, map[string]string{"alice": "red"}, rpcschema.Default(), nil)
	require.NoError(b, err)
	scope := tenancy.Of("alice")
	red := lvolUUID(redStore, 0)
	subsystem := `[{"nqn":"nqn.2016-06.io.spdk:red-1","subtype":"NVMe","listen_addresses":[{"trtype":"TCP","adrfam":"IPv4","traddr":"127.0.0.1","trsvcid":"4420"}],` +
		`"allow_any_host":false,"hosts":[{"nqn":"` + redHost + `"}],"serial_number":"S","model_number":"M","max_namespaces":32,"min_cntlid":1,"max_cntlid":65519,` +
		`"namespaces":[{"nsid":1,"bdev_name":"` + red + `","name":"` + red + `","nguid":"00000000000000000000000000000001","uuid":"` + red + `"}]}]`
	for _, c := range []struct {
		name, method string
		params       p
		result       json.RawMessage
	}{
		{"version", "spdk_get_version", nil, json.RawMessage(`{"version":"SPDK v26.05","fields":{"major":26,"minor":5,"patch":0,"suffix":""}}`)},
		{"bdev by alias", "bdev_get_bdevs", p{"name": "lvs-red/vol0"}, listOf(1, 1, lvolBdev)},
		{"bdev by UUID", "bdev_get_bdevs", p{"name": red}, listOf(1, 1, lvolBdev)},
		{"10 of 1000 bdevs", "bdev_get_bdevs", nil, listOf(1000, 10, lvolBdev)},
		{"1000 of 1000 bdevs", "bdev_get_bdevs", nil, listOf(1000, 1000, lvolBdev)},
		{"create", "bdev_lvol_create", p{"lvol_name": "v", "size_in_mib": json.Number("8"), "lvs_name": "lvs-red", "thin_provision": true}, json.RawMessage(`"` + red + `"`)},
		{"add_ns", "nvmf_subsystem_add_ns", p{"nqn": "nqn.2016-06.io.spdk:red-1", "namespace": p{"bdev_name": red, "uuid": red}}, json.RawMessage(`1`)},
		{"1000 lvols", "bdev_lvol_get_lvols", p{"lvs_name": "lvs-red"}, listOf(1000, 1000, lvolItem)},
		{"subsystem", "nvmf_get_subsystems", p{"nqn": "nqn.2016-06.io.spdk:red-1"}, json.RawMessage(subsystem)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var asked int
			ask := func(_ context.Context, method string, params map[string]any) (json.RawMessage, error) {
				asked++
				switch {
				case method == "bdev_lvol_get_lvstores":
					return json.RawMessage(`[{"uuid":"` + redStore + `","name":"lvs-red"},{"uuid":"` + blueStore + `","name":"lvs-blue"}]`), nil
				case params["name"] == red:
					return listOf(1, 1, lvolBdev), nil
				}
				return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.NoSuchDevice, Code: -19}
			}
			m, _ := rpcschema.Default().Method(c.method)
			b.ReportAllocs()
			for b.Loop() {
				g, err := scope.Admit(b.Context(), m, c.params, ask)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := g.Answer(b.Context(), c.result, nil); err != nil {
					b.Fatal(err)
				}
				g.Close()
			}
			b.ReportMetric(float64(asked)/float64(b.N), "asked/op")
		})
	}
}
