package rpcschema

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// requests contains typical requests that a proxy decodes and validates.
var requests = map[string]string{
	"bdev_lvol_create": `{"jsonrpc":"2.0","id":1,"method":"bdev_lvol_create","params":{"lvol_name":"pvc-0d9a57b2-7f4e-4a6e-8d3c-5b1f0e9a7c66",
		"size_in_mib":1024,"lvs_name":"lvs0","thin_provision":true,"clear_method":"unmap"}}`,
	"nvmf_create_subsystem": `{"jsonrpc":"2.0","id":1,"method":"nvmf_create_subsystem","params":{"nqn":"nqn.2024-01.io.spdk:pvc-0d9a57b2-7f4e-4a6e-8d3c-5b1f0e9a7c66",
		"serial_number":"0d9a57b27f4e4a6e8d3c","model_number":"SPDKGate volume","max_namespaces":32,"allow_any_host":false,"ana_reporting":true,"min_cntlid":1,"max_cntlid":1000}}`,
}

func decodeAndValidate(d *Document, text []byte) error {
	elements, _, err := jsonrpc.DecodeMessage(text, jsonrpc.LimitsV2605)
	if err != nil {
		return err
	}
	r := elements[0].Request
	return d.ValidateParams(r.Method, r.Params, v2605)
}

// Decoding and validating a call causes at most 60 allocations. BenchmarkDecodeAndValidate measures
// the time.
func TestCallsMakeFewAllocations(t *testing.T) {
	d := Default()
	for name, text := range requests {
		require.NoError(t, decodeAndValidate(d, []byte(text)), name)
		allocations := testing.AllocsPerRun(100, func() { _ = decodeAndValidate(d, []byte(text)) })
		t.Logf("%s: %.0f allocations", name, allocations)
		assert.LessOrEqual(t, allocations, 60.0, name)
	}
}

func BenchmarkDecodeAndValidate(b *testing.B) {
	d := Default()
	for name, text := range requests {
		b.Run(name, func(b *testing.B) {
			request := []byte(text)
			require.NoError(b, decodeAndValidate(d, request))
			b.ReportAllocs()
			for b.Loop() {
				_ = decodeAndValidate(d, request)
			}
		})
	}
}
