package policy

import (
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// These are the names of the built-in roles.
const (
	Admin         = "admin"
	ReadOnly      = "read-only"
	Metrics       = "metrics"
	CSIController = "csi-controller"
	Cinder        = "cinder"
)

// BuiltIn returns the built-in roles by name. The configuration cannot redefine them.
func BuiltIn(schema *rpcschema.Document) map[string]Role {
	roles := map[string]Role{
		Admin:         {Allow: []Rule{{Method: "*"}}},
		ReadOnly:      {redact: true},
		Metrics:       {redact: true},
		CSIController: {},
		Cinder:        {},
	}
	add := func(name string, rule Rule) {
		role := roles[name]
		role.Allow = append(role.Allow, rule)
		roles[name] = role
	}
	for _, m := range schema.Methods() {
		if reading, ok := readingRule(m); ok {
			add(ReadOnly, reading)
			if m.Statistics {
				add(Metrics, reading)
			}
		}
		if slices.Contains(csiController, m.Name) {
			// The driver needs the tags of authentication groups, but not the passwords in them.
			add(CSIController, Rule{Method: m.Name, redact: m.Name == "iscsi_get_auth_groups"})
		}
		if slices.Contains(cinder, m.Name) {
			add(Cinder, Rule{Method: m.Name})
		}
	}
	return roles
}

// readingRule returns a rule that allows the calls of a method that only read, or false if there
// are none. It excludes methods that require a secret, because they act with another user's
// authority, and methods that require a path, because they read files on the target's host.
func readingRule(m *rpcschema.Method) (Rule, bool) {
	rule := Rule{Method: m.Name}
	for _, p := range m.Params {
		if p.Required && (p.Schema.Sensitive || p.Schema.Resource == "file") {
			return rule, false
		}
	}
	if m.Stalls || m.Mutates && len(m.ReadsIf) == 0 {
		return rule, false
	}
	if m.Mutates {
		rule.Where = map[string]Test{}
		for param, values := range m.ReadsIf {
			t := Test{Absent: new(true)}
			for _, v := range values {
				t.Enum = append(t.Enum, Value{v})
			}
			rule.Where["/"+param] = t
		}
	}
	return rule, true
}

// cinder lists the methods that OpenStack Cinder's SPDK driver calls. A test in package proxy
// replays the driver's calls with this role.
var cinder = []string{
	"bdev_get_bdevs",
	"bdev_lvol_clone",
	"bdev_lvol_create",
	"bdev_lvol_delete",
	"bdev_lvol_get_lvstores",
	"bdev_lvol_inflate",
	"bdev_lvol_resize",
	"bdev_lvol_snapshot",
	"nvmf_create_subsystem",
	"nvmf_create_transport",
	"nvmf_delete_subsystem",
	"nvmf_get_subsystems",
	"nvmf_subsystem_add_listener",
	"nvmf_subsystem_add_ns",
}

// csiController lists the methods that SPDKGate's CSI driver calls. test/checks/roles compares the
// list with the driver's code.
var csiController = []string{
	"bdev_get_bdevs",
	"bdev_get_iostat",
	"bdev_lvol_clone",
	"bdev_lvol_create",
	"bdev_lvol_decouple_parent",
	"bdev_lvol_delete",
	"bdev_lvol_get_lvols",
	"bdev_lvol_get_lvstores",
	"bdev_lvol_rename",
	"bdev_lvol_resize",
	"bdev_lvol_set_parent",
	"bdev_lvol_snapshot",
	"bdev_raid_get_bdevs",
	"bdev_set_qos_limit",
	"bdev_wait_for_examine",
	"iscsi_create_auth_group",
	"iscsi_create_initiator_group",
	"iscsi_create_portal_group",
	"iscsi_create_target_node",
	"iscsi_delete_auth_group",
	"iscsi_delete_initiator_group",
	"iscsi_delete_target_node",
	"iscsi_get_auth_groups",
	"iscsi_get_connections",
	"iscsi_get_initiator_groups",
	"iscsi_get_portal_groups",
	"iscsi_get_target_nodes",
	"iscsi_target_node_add_lun",
	"iscsi_target_node_add_pg_ig_maps",
	"iscsi_target_node_remove_pg_ig_maps",
	"iscsi_target_node_set_auth",
	"keyring_get_keys",
	"nvmf_create_subsystem",
	"nvmf_create_transport",
	"nvmf_delete_subsystem",
	"nvmf_get_subsystems",
	"nvmf_get_transports",
	"nvmf_subsystem_add_host",
	"nvmf_subsystem_add_listener",
	"nvmf_subsystem_add_ns",
	"nvmf_subsystem_allow_any_host",
	"nvmf_subsystem_get_controllers",
	"nvmf_subsystem_remove_host",
	"nvmf_subsystem_set_keys",
	"spdk_get_version",
	"spdkgate_config_await",
	"spdkgate_key_add",
	"spdkgate_key_remove",
	"spdkgate_lvol_changes",
	"spdkgate_lvol_delete",
	"spdkgate_lvol_snapshot",
	"spdkgate_lvol_snapshot_barrier",
	"spdkgate_target_get_info",
}
