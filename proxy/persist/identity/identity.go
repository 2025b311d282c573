// Package identity determines which calls in a saved configuration create or set the same object.
//
// The package must not depend on where calls are saved, or on how package persist resolves
// conflicts between calls.
package identity

import (
	"encoding/json"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// identifiedBy lists, for each method, the parameters that identify what a call creates or sets.
// Methods that are identified by their required parameters are not listed. Calls with equal
// identifying parameters conflict: for example, of two calls of iscsi_create_initiator_group with
// the same tag, spdk_tgt loads only the first, even if their initiators differ. An empty list means
// that the target has only one setting of this kind. In "a.b", b is a member of the object a.
var identifiedBy = map[string][]string{
	"accel_assign_opc":                 {"opname"},
	"accel_crypto_key_create":          {"name"},
	"accel_error_inject_error":         {"opcode"},
	"bdev_aio_create":                  {"name"},
	"bdev_compress_create":             {"base_bdev_name"},
	"bdev_crypto_create":               {"name"},
	"bdev_daos_create":                 {"name"},
	"bdev_delay_create":                {"name"},
	"bdev_enable_histogram":            {"name"},
	"bdev_ftl_create":                  {"name"},
	"bdev_iscsi_create":                {"name"},
	"bdev_malloc_create":               {"name"},
	"bdev_null_create":                 {"name"},
	"bdev_nvme_attach_controller":      {"name", "trtype", "traddr", "trsvcid", "subnqn", "hostaddr", "hostsvcid"}, // a path
	"bdev_nvme_set_hotplug":            {},
	"bdev_nvme_set_multipath_policy":   {"name"},
	"bdev_nvme_start_discovery":        {"name"},
	"bdev_nvme_start_mdns_discovery":   {"name"},
	"bdev_ocf_create":                  {"name"},
	"bdev_passthru_create":             {"name"},
	"bdev_raid_create":                 {"name"},
	"bdev_rbd_create":                  {"name"},
	"bdev_split_create":                {"base_bdev"},
	"bdev_uring_create":                {"name"},
	"bdev_virtio_attach_controller":    {"name"},
	"bdev_xnvme_create":                {"name"},
	"bdev_zone_block_create":           {"name"},
	"compressdev_scan_accel_module":    {},
	"dpdk_cryptodev_set_driver":        {},
	"framework_set_scheduler":          {},
	"fsdev_aio_create":                 {"name"},
	"fsdev_set_opts":                   {},
	"iscsi_create_initiator_group":     {"tag"},
	"iscsi_create_portal_group":        {"tag"},
	"iscsi_create_target_node":         {"name"},
	"iscsi_enable_histogram":           {"name"},
	"keyring_file_add_key":             {"name"},
	"nbd_start_disk":                   {"nbd_device"},
	"nvmf_discovery_add_referral":      {"address", "subnqn"},
	"nvmf_set_max_subsystems":          {},
	"nvmf_subsystem_add_ns":            {"nqn", "namespace.nsid"},
	"sock_set_default_impl":            {},
	"ublk_start_disk":                  {"ublk_id"},
	"vhost_controller_set_coalescing":  {"ctrlr"},
	"vhost_create_blk_controller":      {"ctrlr"},
	"vhost_scsi_controller_add_target": {"ctrlr", "scsi_target_num"},
	"bdev_get_bdevs":                   {"name"}, // waits for a bdev
}

var losesMembers = map[string]bool{"bdev_raid_create": true, "iscsi_create_target_node": true}

// LosesMembers reports whether objects created by the method can lose members without a call, for
// example when a disk is removed or the target stops. The caller must not mistake such a loss for a
// change made by a call.
func LosesMembers(method string) bool { return losesMembers[method] }

const maxNames = 4096 // more than any SPDK call contains

// Of identifies the object that a call creates or sets by the call's method and parameters. Calls
// with equal results conflict, because spdk_tgt can load only one of them. If the object is
// unknown, Of returns "".
func Of(schema *rpcschema.Document, method string, params map[string]any) string {
	object := map[string]any{}
	m, known := schema.Method(method)
	by, listed := identifiedBy[method]
	switch {
	case listed:
		for _, name := range by {
			if v := member(params, name); v != nil {
				object[name] = v
			}
		}
		if len(object) == 0 && len(by) > 0 {
			return ""
		}
	case !known || !m.Mutates: // such as bdev_wait_for_examine
		return ""
	default:
		for _, required := range m.Params {
			v, given := params[required.Name]
			if !required.Required || !given {
				continue
			}
			object[required.Name] = v
			if names, _ := schema.Names(method, map[string]any{required.Name: v}, maxNames); len(names) > 0 {
				object[required.Name] = names
			}
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return ""
	}
	return method + " " + string(text)
}

func member(params map[string]any, name string) any {
	name, inner, nested := strings.Cut(name, ".")
	if !nested {
		return params[name]
	}
	members, _ := params[name].(map[string]any)
	return members[inner]
}
