package plan

import "slices"

// The kind of a value (x-spdk-resource) determines how package tenancy treats the name that the
// value contains. Objects of kinds not listed here cannot belong to any tenant: files on the
// target's host, controllers, iSCSI groups, and kinds added to the schema later.
var (
	// objectKinds are kinds of objects on the target. A call that names a foreign object gets the
	// same response as if the object did not exist.
	objectKinds = []string{"bdev", "lvstore", "lvstore-uuid", "nqn", "iqn", "key"}
	// newKinds maps the kind of a new name in a call to the kind of the object that the call
	// creates. If the name does not belong to the tenant, the call is refused, whether or not the
	// name is in use.
	newKinds = map[string]string{"new-bdev": "bdev", "new-lvstore": "lvstore", "new-nqn": "nqn", "new-iqn": "iqn", "new-key": "key"}
	// configuredKinds are not objects; the tenant's configuration lists the permitted values.
	configuredKinds = []string{"address", "host-nqn"}
	// innerKinds are kinds of names within another object: a volume's name in its lvstore, or the
	// initiators that may log in to an iSCSI target.
	innerKinds = []string{"lvol-name", "initiator"}
)

// Objects lists the kinds of objects that can belong to a tenant.
func Objects() []string { return slices.Clone(objectKinds) }

// IsObject reports whether values of a kind name objects of the target.
func IsObject(kind string) bool { return slices.Contains(objectKinds, kind) }

// IsNew reports whether values of a kind name objects that the call creates.
func IsNew(kind string) bool { return newKinds[kind] != "" }

// IsConfigured reports whether the tenant's configuration lists the permitted values of a kind.
func IsConfigured(kind string) bool { return slices.Contains(configuredKinds, kind) }

// IsInner reports whether values of a kind name something within the object that the call concerns.
func IsInner(kind string) bool { return slices.Contains(innerKinds, kind) }

// Created returns the kind of the object that a call with a name of this kind creates, or "" if it
// creates none.
func Created(kind string) string { return newKinds[kind] }

// HarmlessText reports whether a parameter, given as METHOD.PARAMETER, accepts any string but never
// names an object.
func HarmlessText(path string) bool { return slices.Contains(harmlessTexts, path) }

// Resizes reports whether a method changes the size of bdevs that may be the origin of a volume.
func Resizes(method string) bool { return slices.Contains(resizing, method) }

// scopes reports whether a parameter of this kind binds the call to an object that can belong to a
// tenant.
func scopes(kind string) bool { return IsObject(kind) || IsNew(kind) }

// These lists contain facts about methods that the schema cannot express.
var (
	// harmless lists methods that tenants may call although they name no objects. Their results do
	// not name tenants' objects, they act only on a barrier at which the same user's call waits, or
	// they filter their results by tenant themselves.
	harmless = []string{"spdk_get_version", "rpc_get_methods", "nvmf_get_transports", "spdkgate_lvol_snapshot_barrier", "spdkgate_target_get_info", "spdkgate_get_tenants", "spdkgate_get_limits"}

	// lvstoreMethods lists methods that add or remove lvstores, except those with a parameter for
	// the name of a new lvstore.
	lvstoreMethods = []string{"bdev_lvol_delete_lvstore"}

	// resizing lists methods that change the size of bdevs that may be the origin of a volume.
	resizing = []string{"bdev_null_resize", "bdev_rbd_resize", "bdev_daos_resize"}

	// deferredTargets lists methods that accept names of bdevs that do not exist yet, and act on
	// these bdevs when they appear. These bdevs may belong to another tenant.
	deferredTargets = []string{"bdev_examine", "bdev_split_create", "bdev_error_create"}

	// uncounted lists methods whose calls add state that SPDK does not list, so that no quota can
	// limit it: for example, the hosts that see a namespace, and the states of copies. SPDK keeps
	// the state of a copy until a client requests it by number, which tenants are not permitted to
	// do.
	uncounted = []string{"nvmf_ns_add_host", "bdev_lvol_start_shallow_copy"}

	// claiming lists methods that make SPDK load a bdev at each start of the target, although a
	// host may still write to it. For example, a RAID claims its disks without checking for other
	// writers, such as an iSCSI target.
	claiming = []string{"bdev_raid_add_base_bdev"}

	// harmlessTexts lists parameters that accept any string but never name objects: values that
	// SPDK reports to hosts, and secrets.
	harmlessTexts = []string{
		"nvmf_create_subsystem.serial_number", "nvmf_create_subsystem.model_number", "nvmf_create_subsystem.admin_label",
		"nvmf_subsystem_add_ns.namespace.nguid", "nvmf_subsystem_add_ns.namespace.eui64",
		"iscsi_create_target_node.alias_name",
		"spdkgate_key_add.secret", "spdkgate_lvol_snapshot.barrier.id",
	}
)
