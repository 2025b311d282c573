package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A tenant writes an lvstore to its volume. The lvstore contains a clone of another tenant's
// volume, under a UUID that previously belonged to one of the first tenant's volumes. Even if the
// configuration accepts that the target loads the lvstore, the clone belongs to no tenant, and
// tenants' calls that name the clone are refused.
func TestLoadedVolumesBelongToNoTenant(t *testing.T) {
	c := newTenantBench(t).config
	b := newBench(t, "v26.05", func(used *config.Config) {
		used.Users, used.Tenants, used.Roles = c.Users, c.Tenants, c.Roles
		used.Target.AcceptLoadingWhatHostsWrite = true
	})
	for _, team := range []string{"a", "b"} {
		b.as(t, "admin", "bdev_malloc_create", `{"name":"Base`+team+`","num_blocks":524288,"block_size":4096}`, http.StatusOK)
		b.as(t, "admin", "bdev_lvol_create_lvstore", `{"bdev_name":"Base`+team+`","lvs_name":"lvs-`+team+`"}`, http.StatusOK)
	}
	secret := resultText(t, b.as(t, teamB, "bdev_lvol_create", `{"lvol_name":"secret","size_in_mib":16,"lvs_name":"lvs-b"}`, http.StatusOK))
	decoy := resultText(t, b.as(t, teamA, "bdev_lvol_create", `{"lvol_name":"decoy","size_in_mib":16,"lvs_name":"lvs-a"}`, http.StatusOK))
	evil := resultText(t, b.as(t, teamA, "bdev_lvol_create", `{"lvol_name":"evil","size_in_mib":64,"lvs_name":"lvs-a"}`, http.StatusOK))
	nqn := `"nqn":"nqn.2020-04.io.spdk.csi:uuid:` + decoy + `"`
	b.as(t, teamA, "nvmf_create_subsystem", `{`+nqn+`,"serial_number":"s"}`, http.StatusOK)
	// makes the proxy cache the owner
	b.as(t, teamA, "bdev_get_bdevs", `{"name":"`+decoy+`"}`, http.StatusOK)
	b.as(t, teamA, "bdev_lvol_delete", `{"name":"`+decoy+`"}`, http.StatusOK)
	require.NoError(t, b.target.WriteStore(evil, spdktest.WrittenStore{Name: "inner", Lvols: []spdktest.WrittenLvol{{Name: "loot", UUID: decoy, External: secret}}}))
	b.as(t, teamA, "bdev_lvol_snapshot", `{"lvol_name":"`+evil+`","snapshot_name":"s"}`, http.StatusOK)
	require.Contains(t, b.as(t, "admin", "bdev_get_bdevs", `{"name":"`+decoy+`"}`, http.StatusOK).body, "inner/loot", "the target has loaded it")

	for method, params := range map[string]string{
		"nvmf_subsystem_add_ns": `{` + nqn + `,"namespace":{"bdev_name":"` + decoy + `"}}`,
		"bdev_get_bdevs":        `{"name":"` + decoy + `"}`,
		"bdev_lvol_resize":      `{"name":"` + decoy + `","size_in_mib":32}`,
		"bdev_lvol_delete":      `{"name":"inner/loot"}`,
		"bdev_lvol_create":      `{"lvol_name":"x","size_in_mib":4,"lvs_name":"inner"}`,
	} {
		g := b.as(t, teamA, method, params, http.StatusOK)
		assert.Contains(t, g.body, `"error"`, method)
		assert.NotContains(t, g.body, "inner", fmt.Sprint(method, "reveals nothing"))
	}
	for _, method := range []string{"bdev_get_bdevs", "bdev_lvol_get_lvols", "bdev_lvol_get_lvstores"} {
		list := b.as(t, teamA, method, "", http.StatusOK).body
		assert.NotContains(t, list, decoy, method)
		assert.NotContains(t, list, "inner", method)
	}
}

// An lvstore written by a host belongs to no tenant, even if it has the name of a tenant's lvstore.
func TestLoadedLvstoreWithATenantNameHasNoOwner(t *testing.T) {
	b := newBench(t, "v24.01", func(c *config.Config) {
		oneTeam(c)
		c.Target.AcceptLoadingWhatHostsWrite = true
	})
	b.as(t, "admin", "bdev_malloc_create", `{"name":"disk","num_blocks":524288,"block_size":4096}`, http.StatusOK)
	b.as(t, "admin", "bdev_lvol_create_lvstore", `{"bdev_name":"disk","lvs_name":"lvs-other"}`, http.StatusOK)
	volume := resultText(t, b.as(t, "admin", "bdev_lvol_create", `{"lvol_name":"v","size":67108864,"lvs_name":"lvs-other"}`, http.StatusOK))
	require.NoError(t, b.target.WriteStore(volume, spdktest.WrittenStore{Name: "lvs-team", Lvols: []spdktest.WrittenLvol{{Name: "x"}}}))
	b.as(t, "admin", "bdev_lvol_snapshot", `{"lvol_name":"`+volume+`","snapshot_name":"s"}`, http.StatusOK)
	require.Contains(t, b.as(t, "admin", "bdev_lvol_get_lvstores", "", http.StatusOK).body, "lvs-team")
	object := func(method, params string) (name, uuid string) {
		var answer struct{ Result []struct{ Name, UUID string } }
		require.NoError(t, json.Unmarshal([]byte(b.as(t, "admin", method, params, http.StatusOK).body), &answer))
		require.Len(t, answer.Result, 1)
		return answer.Result[0].Name, answer.Result[0].UUID
	}
	_, store := object("bdev_lvol_get_lvstores", `{"lvs_name":"lvs-team"}`)
	inside, _ := object("bdev_get_bdevs", `{"name":"lvs-team/x"}`)
	b.target.ForgetCalls()
	for _, call := range [][2]string{
		{"bdev_lvol_create", `{"lvol_name":"y","size":4194304,"lvs_name":"lvs-team"}`},
		{"bdev_lvol_create", `{"lvol_name":"y","size":4194304,"uuid":"` + store + `"}`},
		{"bdev_lvol_delete", `{"name":"lvs-team/x"}`},
		{"bdev_lvol_delete", `{"name":"` + inside + `"}`},
		{"bdev_lvol_resize", `{"name":"` + inside + `","size":8388608}`},
		{"bdev_set_qos_limit", `{"name":"` + inside + `","rw_ios_per_sec":1000}`},
	} {
		assert.Contains(t, b.as(t, "team", call[0], call[1], http.StatusOK).body, `"error"`, call)
	}
	for _, c := range b.target.Calls() {
		if strings.HasPrefix(c.Method, "bdev_lvol_get") || c.Method == "bdev_get_bdevs" {
			continue // the proxy's own queries
		}
		for _, name := range []string{"lvs-team", store, inside} {
			assert.NotContains(t, fmt.Sprint(c.Params), name, "%s reaches SPDK", c.Method)
		}
	}
	assert.Contains(t, b.as(t, "team", "bdev_get_bdevs", `{"name":"`+inside+`"}`, http.StatusOK).body, "No such device")
	assert.NotContains(t, b.as(t, "team", "bdev_lvol_get_lvols", "", http.StatusOK).body, "lvs-team")
}

// A bdev based on a logical volume, such as a RAID whose superblock was written by a host, belongs
// to no tenant, even if its name matches a tenant's bdevs. Therefore, lists omit it.
func TestBdevsOnVolumesAreNotListed(t *testing.T) {
	b := newSafeBench(t, "v26.05", func(c *config.Config) {
		oneTeam(c)
		c.Tenants = map[string]config.Tenant{"team": {Bdevs: []string{"team-*"}, NQNPrefixes: []string{"nqn.2016-06.io.spdk:team"}}}
	})
	b.as(t, "admin", "bdev_malloc_create", `{"name":"team-disk","num_blocks":1024,"block_size":4096}`, http.StatusOK)
	b.as(t, "admin", "nvmf_create_subsystem", `{"nqn":"nqn.2016-06.io.spdk:team","serial_number":"s"}`, http.StatusOK)
	b.as(t, "admin", "nvmf_subsystem_add_ns", `{"nqn":"nqn.2016-06.io.spdk:team","namespace":{"bdev_name":"team-disk"}}`, http.StatusOK)
	b.as(t, "admin", "bdev_malloc_create", `{"name":"disk","num_blocks":524288,"block_size":4096}`, http.StatusOK)
	b.as(t, "admin", "bdev_lvol_create_lvstore", `{"bdev_name":"disk","lvs_name":"lvs-other"}`, http.StatusOK)
	for i := range 6 { // more bdevs than the proxy looks up individually
		b.as(t, "admin", "bdev_lvol_create", fmt.Sprintf(`{"lvol_name":"v%d","size_in_mib":4,"lvs_name":"lvs-other"}`, i), http.StatusOK)
		b.as(t, "admin", "bdev_passthru_create", fmt.Sprintf(`{"name":"team-low%d","base_bdev_name":"lvs-other/v%[1]d"}`, i), http.StatusOK)
		b.as(t, "admin", "bdev_passthru_create", fmt.Sprintf(`{"name":"team-high%d","base_bdev_name":"team-low%[1]d"}`, i), http.StatusOK)
		b.as(t, "admin", "nvmf_subsystem_add_ns", fmt.Sprintf(`{"nqn":"nqn.2016-06.io.spdk:team","namespace":{"bdev_name":"team-high%d"}}`, i), http.StatusOK)
	}
	for _, method := range []string{"bdev_get_bdevs", "nvmf_get_subsystems"} {
		list := b.as(t, "team", method, "", http.StatusOK).body
		assert.Contains(t, list, "team-disk", method)
		assert.NotContains(t, list, "team-low", method)
		assert.NotContains(t, list, "team-high", method)
	}
	assert.Contains(t, b.as(t, "team", "bdev_get_bdevs", `{"name":"team-high0"}`, http.StatusOK).body, "No such device")
}
