package tenancy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// What the stage costs a call that takes no question: its parameters, and the
// result of one bdev.
func BenchmarkCall(b *testing.B) {
	tenancy, err := New([]Tenant{redTenant(), blueTenant()}, map[string]string{"alice": "red"}, rpcschema.Default(), nil)
	require.NoError(b, err)
	scope := tenancy.Of("alice")
	m, _ := rpcschema.Default().Method("bdev_get_bdevs")
	params := p{"name": "lvs-red/vol"}
	result := json.RawMessage(`[{"name":"aaaaaaaa-0000-4000-8000-000000000001","aliases":["lvs-red/vol"],"product_name":"Logical Volume","block_size":512,"num_blocks":8192,` +
		`"uuid":"aaaaaaaa-0000-4000-8000-000000000001","assigned_rate_limits":{"rw_ios_per_sec":0,"rw_mbytes_per_sec":0,"r_mbytes_per_sec":0,"w_mbytes_per_sec":0},"claimed":false,"zoned":false,` +
		`"supported_io_types":{"read":true,"write":true,"unmap":true,"flush":false,"reset":true,"nvme_admin":false,"nvme_io":false,"write_zeroes":true,"compare":false,"compare_and_write":false,"abort":false},` +
		`"driver_specific":{"lvol":{"lvol_store_uuid":"aaaaaaaa-0000-4000-8000-00000000000a","base_bdev":"Nvme0n1","thin_provision":true,"num_allocated_clusters":0,"snapshot":false,"clone":false,"esnap_clone":false}}}]`)
	for b.Loop() {
		g, err := scope.Admit(b.Context(), m, params, oracle)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := g.Answer(b.Context(), result, nil); err != nil {
			b.Fatal(err)
		}
		g.Close()
	}
}
