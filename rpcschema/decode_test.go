package rpcschema

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDecodeErrorIsInvalidParamsUnlessTheAreaSaysOtherwise(t *testing.T) {
	for method, want := range map[string]int{
		"nvmf_create_subsystem": -32602, "bdev_lvol_create": -32603, "bdev_crypto_create": -32700, "bdev_crypto_delete": -32602, "bdev_examine": -32602,
		"bdev_set_options": -32602, "iscsi_get_histogram": -32603, "accel_crypto_key_create": -32700, "virtio_blk_create_transport": -22,
	} {
		m, ok := Default().Method(method)
		require.True(t, ok, method)
		assert.Equal(t, want, m.DecodeError, method)
	}
}

func TestRelaxedMethodsIgnoreUnknownParameters(t *testing.T) {
	v2405, v2509, v2601 := MustRelease("v24.05"), MustRelease("v25.09"), MustRelease("v26.01")
	for _, c := range []struct {
		method string
		at     Release
		want   bool
	}{
		{"bdev_lvol_create", v2605, false}, {"nvmf_create_transport", Oldest, true}, {"nvmf_create_transport", v2605, true},
		{"nvmf_subsystem_add_ns", v2401, false}, {"nvmf_subsystem_add_ns", v2405, true},
		{"ublk_create_target", v2401, false}, {"ublk_create_target", v2509, true}, {"ublk_create_target", v2601, false},
	} {
		m, ok := Default().Method(c.method)
		require.True(t, ok, c.method)
		assert.Equal(t, c.want, m.IgnoresUnknown(c.at), "%s %s", c.method, c.at)
		params := map[string]any{"no_such_parameter": true}
		assert.ErrorContains(t, Default().ValidateParams(c.method, params, c.at), "no_such_parameter", "%s: validation refuses parameters that SPDK ignores", c.method)
	}
}

// A release may decode a call and then refuse it with another error. Validation rejects such a call
// before it is sent.
func TestParametersRequiredByTheDecoderAreReported(t *testing.T) {
	clone, _ := Default().Method("bdev_lvol_clone")
	assert.False(t, clone.DecoderRequires("clone_name", v2401))
	assert.True(t, clone.RequiredAt("clone_name", v2401))
	assert.True(t, clone.DecoderRequires("clone_name", v2605))
	create, _ := Default().Method("bdev_lvol_create")
	assert.False(t, create.DecoderRequires("size_in_mib", MustRelease("v23.05")), "either size or size_in_mib is enough")
	assert.False(t, create.DecoderRequires("thin_provision", v2605))
	assert.False(t, create.DecoderRequires("size", v2605))
	address := Default().Schemas()["NVMfListenAddress"]
	assert.False(t, address.DecoderRequires("trtype", v2401))
	assert.True(t, address.DecoderRequires("trtype", v2605))
	assert.True(t, address.DecoderRequires("traddr", v2401))
	assert.False(t, address.DecoderRequires("adrfam", v2605))
}
