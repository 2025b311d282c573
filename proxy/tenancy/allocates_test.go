package tenancy

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// numbersOf calls f for each number in the parameters of the methods that tenants may call, at any
// depth. wrap creates a parameter's value from a number.
func numbersOf(t *Tenancy, scope *Scope, f func(m *rpcschema.Method, param, path string, n plan.Node, wrap func(any) any)) {
	for _, m := range rpcschema.Default().Methods() {
		if m.ServedBy == rpcschema.ServedByProxy || !scope.MayCall(m.Name) {
			continue
		}
		for _, param := range m.Params {
			var walk func(list []plan.Node, path string, wrap func(any) any)
			walk = func(list []plan.Node, path string, wrap func(any) any) {
				for _, n := range list {
					if slices.Contains(n.Type, "integer") || slices.Contains(n.Type, "number") {
						f(m, param.Name, path, n, wrap)
					}
					for _, p := range n.Properties {
						walk(t.plans.Nodes(p.Schema), path+"."+p.Name, func(v any) any { return wrap(map[string]any{p.Name: v}) })
					}
					walk(t.plans.Nodes(n.Items), path, func(v any) any { return wrap([]any{v}) })
				}
			}
			walk(t.plans.Nodes(param.Schema), m.Name+"."+param.Name, func(v any) any { return v })
		}
	}
}

func beyond(t *testing.T, n json.Number, by int64) json.Number {
	v, err := strconv.ParseInt(n.String(), 10, 64)
	require.NoError(t, err)
	return json.Number(strconv.FormatInt(v+by, 10))
}

// No parameter lets a tenant make SPDK allocate more memory at once than the schema permits, unless
// the configuration allows it.
func TestTenantAllocationsAreLimited(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		w := newWorld(t, "v26.05", func(red *Tenant) {
			if allowed {
				red.Allow = []string{AnySize}
			}
		})
		scope := w.tenancy.Of("alice")
		tried := 0
		numbersOf(w.tenancy, scope, func(m *rpcschema.Method, param, path string, n plan.Node, wrap func(any) any) {
			if !n.Allocates.Bounded() {
				return
			}
			check := func(v json.Number, refused bool) {
				tried++
				_, err := scope.Admit(t.Context(), m, map[string]any{param: wrap(v)}, w.ask)
				if refused && !allowed {
					var refusal *Refusal
					require.ErrorAs(t, err, &refusal, "%s %s", path, v)
					assert.Contains(t, err.Error(), strings.TrimPrefix(path, m.Name+".")+" must be at ")
					assert.Contains(t, err.Error(), "allow: [any-size]")
				} else if err != nil {
					assert.NotContains(t, err.Error(), AnySize, "%s %s", path, v)
				}
			}
			check("0", false)
			if n.Allocates.AtMost != "" {
				check(n.Allocates.AtMost, false)
				check(beyond(t, n.Allocates.AtMost, 1), true)
				check("18446744073709551615", true)
				check("1e999", true)
			}
			if n.Allocates.AtLeast != "" {
				check(n.Allocates.AtLeast, false)
				check(beyond(t, n.Allocates.AtLeast, -1), true)
				check("1", true)
			}
		})
		assert.Greater(t, tried, 40)
	}
}

// Every number that a tenant can send is either limited or listed here with the reason why it is
// not, so that numbers added by later releases are not overlooked.
func TestNumbersInTenantCallsAreLimited(t *testing.T) {
	harmless := map[string]string{
		"bdev_delay_update_latency.latency_us":                  "a time",
		"bdev_enable_histogram.min_nsec":                        "a time; there are at most 64 ranges",
		"bdev_enable_histogram.max_nsec":                        "a time; there are at most 64 ranges",
		"bdev_error_inject_error.num":                           "a counter (module/bdev/error/vbdev_error.c)",
		"bdev_error_inject_error.queue_depth":                   "a counter; the I/O exists already",
		"bdev_error_inject_error.corrupt_offset":                "an offset in a block",
		"bdev_error_inject_error.corrupt_value":                 "a byte",
		"bdev_error_inject_error.nvme_sct":                      "a code",
		"bdev_error_inject_error.nvme_sc":                       "a code",
		"bdev_ftl_unmap.lba":                                    "I/O of the tenant's bdev",
		"bdev_ftl_unmap.num_blocks":                             "I/O of the tenant's bdev",
		"bdev_get_bdevs.timeout":                                "a time",
		"bdev_get_histogram_borders.borders":                    "a time; the request's length bounds their number",
		"bdev_daos_resize.new_size":                             "is passed on to the storage",
		"bdev_rbd_resize.new_size":                              "is passed on to the storage",
		"bdev_malloc_create.physical_block_size":                "only reported (module/bdev/malloc/bdev_malloc.c)",
		"bdev_malloc_create.optimal_io_boundary":                "splits the tenant's own I/O",
		"bdev_malloc_create.md_size":                            "SPDK accepts up to 128 bytes for each block",
		"bdev_malloc_create.dif_type":                           "a code",
		"bdev_malloc_create.dif_pi_format":                      "a code",
		"bdev_malloc_create.numa_id":                            "an id",
		"bdev_null_create.physical_block_size":                  "only reported (module/bdev/null/bdev_null.c)",
		"bdev_null_create.md_size":                              "SPDK accepts up to 128 bytes for each block",
		"bdev_null_create.dif_type":                             "a code",
		"bdev_null_create.dif_pi_format":                        "a code",
		"bdev_null_create.preferred_write_alignment":            "only reported",
		"bdev_null_create.preferred_write_granularity":          "only reported",
		"bdev_null_create.optimal_write_size":                   "only reported",
		"bdev_null_create.preferred_unmap_alignment":            "only reported",
		"bdev_null_create.preferred_unmap_granularity":          "only reported",
		"bdev_nvme_set_multipath_policy.rr_min_io":              "a counter",
		"bdev_nvme_set_preferred_path.cntlid":                   "an id",
		"bdev_lvol_create_lvstore.md_page_size":                 "at most 65536",
		"bdev_ocf_set_seqcutoff.threshold":                      "a threshold",
		"bdev_ocf_set_seqcutoff.promotion_count":                "a counter",
		"bdev_set_qos_limit.rw_ios_per_sec":                     "a rate",
		"bdev_set_qos_limit.rw_mbytes_per_sec":                  "a rate",
		"bdev_set_qos_limit.r_mbytes_per_sec":                   "a rate",
		"bdev_set_qos_limit.w_mbytes_per_sec":                   "a rate",
		"iscsi_target_node_add_lun.lun_id":                      "at most 255",
		"iscsi_target_node_add_pg_ig_maps.pg_ig_maps.pg_tag":    "an id",
		"iscsi_target_node_add_pg_ig_maps.pg_ig_maps.ig_tag":    "an id",
		"iscsi_target_node_remove_pg_ig_maps.pg_ig_maps.pg_tag": "an id",
		"iscsi_target_node_remove_pg_ig_maps.pg_ig_maps.ig_tag": "an id",
		"iscsi_target_node_request_logout.pg_tag":               "an id",
		"iscsi_target_node_set_auth.chap_group":                 "an id",
		"notify_get_notifications.id":                           "SPDK keeps 1,024 (lib/notify/notify.c)",
		"notify_get_notifications.max":                          "SPDK keeps 1,024 (lib/notify/notify.c)",
		"nvmf_create_subsystem.min_cntlid":                      "an id",
		"nvmf_create_subsystem.max_cntlid":                      "an id",
		"nvmf_create_subsystem.max_discard_size_kib":            "reported to hosts",
		"nvmf_create_subsystem.max_write_zeroes_size_kib":       "reported to hosts",
		"nvmf_create_subsystem.dmrsl":                           "reported to hosts",
		"nvmf_create_subsystem.wzsl":                            "reported to hosts",
		"nvmf_ns_remove_host.nsid":                              "at most max_namespaces",
		"nvmf_subsystem_add_listener.numa_id":                   "an id",
		"nvmf_subsystem_add_ns.namespace.nsid":                  "at most max_namespaces (lib/nvmf/subsystem.c)",
		"nvmf_subsystem_add_ns.namespace.anagrpid":              "at most max_namespaces (lib/nvmf/subsystem.c)",
		"nvmf_subsystem_listener_set_ana_state.anagrpid":        "at most max_namespaces",
		"nvmf_subsystem_remove_host.timeout_ms":                 "a time",
		"nvmf_subsystem_remove_ns.nsid":                         "at most max_namespaces",
		"nvmf_subsystem_set_ns_ana_group.nsid":                  "at most max_namespaces",
		"nvmf_subsystem_set_ns_ana_group.anagrpid":              "at most max_namespaces",
		"ublk_get_disks.ublk_id":                                "an id",
	}
	w := newWorld(t, "v26.05")
	numbersOf(w.tenancy, w.tenancy.Of("alice"), func(_ *rpcschema.Method, _, path string, n plan.Node, _ func(any) any) {
		if !n.Allocates.Bounded() {
			assert.NotEmpty(t, harmless[path], "%s: bound it by x-spdk-allocates, or list it here with the reason", path)
		}
		delete(harmless, path)
	})
	assert.Empty(t, harmless, "remove these rows: the numbers are bounded, or tenants cannot send them")
}
