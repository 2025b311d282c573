package proxy

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// After a restart, a target that does not examine volumes would not find the external clone of a
// volume, so the proxy refuses to create such a clone. Disks can have external clones.
func TestVolumesAreRefusedAsExternalParents(t *testing.T) {
	for name, c := range map[string]struct {
		release                   string
		listed, disabled, refused bool
	}{
		"volumes are examined":             {"v26.05", false, false, false},
		"volumes are not examined":         {"v26.05", true, false, true},
		"volumes are not examined, v24.01": {"v24.01", true, false, true},
		"volumes will not be examined":     {"v26.05", false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			release := rpcschema.MustRelease(c.release)
			b := newBenchWith(t, spdktest.Options{Release: release, ExamineListed: c.listed}, func(used *config.Config) {
				if c.disabled {
					used.Target.Save.Dir, used.Target.Save.DisableAutoExamine = filepath.Join(t.TempDir(), "saved"), true
				}
			})
			for _, disk := range []string{"image", "image2"} {
				b.call(t, "bdev_malloc_create", `{"name":"`+disk+`","num_blocks":2048,"block_size":4096}`)
			}
			for _, store := range []string{"lvs0", "lvs1"} {
				b.call(t, "bdev_malloc_create", `{"name":"base-`+store+`","num_blocks":65536,"block_size":4096}`)
				b.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"base-`+store+`","lvs_name":"`+store+`"}`)
			}
			for _, volume := range []string{"v", "w"} {
				b.call(t, "bdev_lvol_create", `{"lvs_name":"lvs0","lvol_name":"`+volume+`","thin_provision":true,"size_in_mib":8}`)
			}
			clones := map[string]string{"bdev_lvol_clone_bdev": `{"bdev":"lvs0/v","lvs_name":"lvs1","clone_name":"c"}`}
			if !release.Before(rpcschema.MustRelease("v24.05")) {
				clones["bdev_lvol_set_parent_bdev"] = `{"lvol_name":"lvs0/w","parent_name":"lvs0/v"}`
				b.call(t, "bdev_lvol_set_parent_bdev", `{"lvol_name":"lvs0/w","parent_name":"image2"}`)
			}
			for method, params := range clones {
				b.target.ForgetCalls()
				g := b.post(rpcCall(method, params))
				assert.Equal(t, http.StatusOK, g.StatusCode)
				if !c.refused {
					assert.NotContains(t, g.body, "error", method)
					continue
				}
				assert.Equal(t, jsonrpc.CodeInvalidParams, g.code(t), g.body)
				assert.Contains(t, g.body, "the clone would be missing. Nothing was executed", method)
				for _, call := range b.target.Calls() {
					assert.NotEqual(t, method, call.Method)
				}
			}
			b.call(t, "bdev_lvol_clone_bdev", `{"bdev":"image","lvs_name":"lvs1","clone_name":"d"}`)
			missing := b.post(rpcCall("bdev_lvol_clone_bdev", `{"bdev":"none","lvs_name":"lvs1","clone_name":"e"}`))
			assert.Contains(t, missing.body, "bdev does not exist", "SPDK's own response")
		})
	}
}
