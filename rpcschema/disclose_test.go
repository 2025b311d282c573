package rpcschema

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDisclosingMethodsAreListed(t *testing.T) {
	var disclosing []string
	for _, m := range Default().Methods() {
		if Default().Discloses(m) {
			disclosing = append(disclosing, m.Name)
		}
	}
	for _, name := range []string{"accel_crypto_keys_get", "framework_get_config", "iscsi_get_auth_groups", "bdev_get_bdevs"} {
		assert.Contains(t, disclosing, name)
	}
	for _, name := range []string{"bdev_lvol_get_lvstores", "nvmf_get_subsystems", "accel_crypto_key_create"} {
		assert.NotContains(t, disclosing, name)
	}
}

func TestSecretResultsAreRedacted(t *testing.T) {
	for name, c := range map[string]struct{ method, result, want string }{
		"keys":    {"accel_crypto_keys_get", `[{"name":"k","cipher":"AES_CBC","key":"00ff","key2":"11ee"}]`, `[{"name":"k","cipher":"AES_CBC","key":"[redacted]","key2":"[redacted]"}]`},
		"objects": {"framework_get_config", `[{"method":"m","params":{"key":"00ff"}}]`, `[{"method":"m","params":null}]`},
		"unions":  {"framework_get_config", `[[{"method":"m","params":{"key":"00ff"}}]]`, `[[{"method":"m","params":null}]]`},
		"deep": {
			"bdev_get_bdevs",
			`[{"name":"i","num_blocks":18446744073709551615,"driver_specific":{"iscsi":{"initiator_name":"n","url":"iscsi://u%p@h/t"},"rbd":{"config":{"key":"x"}}}}]`,
			`[{"name":"i","num_blocks":18446744073709551615,"driver_specific":{"iscsi":{"initiator_name":"n","url":"[redacted]"},"rbd":null}}]`,
		},
		"unknown member":    {"accel_crypto_keys_get", `[{"name":"k","new_secret":"00ff"}]`, `[{"name":"k"}]`},
		"another type":      {"accel_crypto_keys_get", `[{"name":"k","key":["00ff"]}]`, `[{"name":"k","key":null}]`},
		"duplicate members": {"accel_crypto_keys_get", `[{"name":"k","key":"00ff","key":"00ff00","key":{"a":"00ff"}}]`, `[{"name":"k","key":"[redacted]","key":"[redacted]","key":null}]`},
		"another spelling":  {"accel_crypto_keys_get", `[{"n\u0061me":"k","k\u0065y":"00ff"}]`, `[{"name":"k","key":"[redacted]"}]`},
		"nothing":           {"accel_crypto_keys_get", `[]`, `[]`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Default().RedactResult(c.method, json.RawMessage(c.result))
			require.NoError(t, err)
			assert.JSONEq(t, c.want, string(got))
			if name == "duplicate members" {
				assert.Equal(t, c.want, string(got), "as SPDK wrote it")
			}
			assert.NotContains(t, string(got), "00ff")
		})
	}
	for _, c := range [][2]string{{"no_such_method", `{}`}, {"accel_crypto_keys_get", `[`}} {
		_, err := Default().RedactResult(c[0], json.RawMessage(c[1]))
		require.Error(t, err)
	}
}
