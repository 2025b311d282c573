package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// Even after a restart of the proxy, a tenant's subsystem whose volume was deleted counts against
// the tenant's quota.
func TestSubsystemsCountAgainstTheQuotaAfterARestart(t *testing.T) {
	const prefix = "nqn.2020-04.io.spdk.csi:uuid:"
	for name, where := range map[string]func(c *config.Config, dir string){
		"saved configuration": func(c *config.Config, dir string) { c.Target.Save = config.Save{Dir: dir, Keep: 1} },
		"state directory": func(_ *config.Config, dir string) {
			require.NoError(t, os.Mkdir(dir, 0o700))
			t.Setenv("STATE_DIRECTORY", dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSafeBench(t, "v26.05", oneTeam, func(c *config.Config) {
				c.Tenants["team"] = config.Tenant{LVStores: []string{"lvs0"}, VolumeNQN: prefix, Quota: config.Quota{Subsystems: new(2)}}
				where(c, filepath.Join(t.TempDir(), "state"))
			})
			b.call(t, "bdev_malloc_create", `{"name":"base","num_blocks":65536,"block_size":4096}`)
			b.call(t, "bdev_lvol_create_lvstore", `{"bdev_name":"base","lvs_name":"lvs0"}`)
			volume := func(name string) string {
				return resultText(t, b.as(t, "team", "bdev_lvol_create", fmt.Sprintf(`{"lvs_name":"lvs0","lvol_name":%q,"size_in_mib":4}`, name), http.StatusOK))
			}
			subsystem := func(uuid string, status int) got {
				return b.as(t, "team", "nvmf_create_subsystem", fmt.Sprintf(`{"nqn":%q}`, prefix+uuid), status)
			}
			restart := func() {
				b.http.Close()
				require.NoError(t, b.proxy.target.Close())
				var err error
				b.proxy, err = NewServer(b.config, Options{})
				require.NoError(t, err)
				b.http = httptest.NewServer(b.proxy.Handler())
			}
			var orphans []string
			for _, name := range []string{"a", "b"} {
				uuid := volume(name)
				orphans = append(orphans, uuid)
				subsystem(uuid, http.StatusOK)
				b.as(t, "team", "bdev_lvol_delete", fmt.Sprintf(`{"name":%q}`, uuid), http.StatusOK)
			}
			third := volume("c")
			subsystem(third, http.StatusInsufficientStorage)
			restart()
			g := subsystem(third, http.StatusInsufficientStorage)
			assert.Contains(t, g.body, "subsystems")

			// An administrator deletes one of the subsystems.
			b.call(t, "nvmf_delete_subsystem", fmt.Sprintf(`{"nqn":%q}`, prefix+orphans[0]))
			restart()
			subsystem(third, http.StatusOK)
			restart()
			subsystem(volume("d"), http.StatusInsufficientStorage)
		})
	}
}
