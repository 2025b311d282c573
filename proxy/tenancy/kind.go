package tenancy

import "slices"

// The kind of a value (x-spdk-resource) decides how its name is treated. Kinds that are not listed
// here can belong to no tenant: files of the target's host, controllers, iSCSI's groups, and kinds
// that the schema may add.
var (
	// objectKinds are objects of the target. A foreign one is answered as if it did not exist.
	objectKinds = []string{"bdev", "lvstore", "lvstore-uuid", "nqn", "iqn", "key"}
	// newKinds maps the kind of a name that a call creates to the kind of the created object.
	// A foreign name is refused, whether or not it is taken.
	newKinds = map[string]string{"new-bdev": "bdev", "new-lvstore": "lvstore", "new-nqn": "nqn", "new-iqn": "iqn", "new-key": "key"}
	// configuredKinds are not objects; the tenant's configuration lists the permitted values.
	configuredKinds = []string{"address", "host-nqn"}
	// innerKinds are names within the object that the call, or the item of a result, is about:
	// a volume's name in its lvstore, the initiators that may log in.
	innerKinds = []string{"lvol-name", "initiator"}
)

func isObject(kind string) bool     { return slices.Contains(objectKinds, kind) }
func isNew(kind string) bool        { return newKinds[kind] != "" }
func isConfigured(kind string) bool { return slices.Contains(configuredKinds, kind) }
func isInner(kind string) bool      { return slices.Contains(innerKinds, kind) }

// scopes reports whether a parameter of this kind binds the call to an object that can belong to a
// tenant.
func scopes(kind string) bool { return isObject(kind) || isNew(kind) }

// Facts that the schema cannot express.
var (
	// harmless methods return strings that name no tenant's objects, or act only on what the same user's call waits at.
	harmless = []string{"spdk_get_version", "rpc_get_methods", "nvmf_get_transports", "spdkgate_lvol_snapshot_barrier", "spdkgate_target_get_info"}

	// lvstoreMethods add or remove lvstores, in addition to methods that name a new one.
	lvstoreMethods = []string{"bdev_lvol_delete_lvstore"}

	// resizing methods change the size of bdevs that may be the origin of a volume.
	resizing = []string{"bdev_null_resize", "bdev_rbd_resize", "bdev_daos_resize"}

	// deferredTargets are methods that accept names of bdevs that do not exist yet, and act on
	// them when they appear: they may then belong to another tenant.
	deferredTargets = []string{"bdev_examine", "bdev_split_create", "bdev_error_create"}

	// harmlessTexts are parameters without a fixed set of values that name no object: what
	// SPDK reports about itself to hosts, and secrets.
	harmlessTexts = []string{
		"nvmf_create_subsystem.serial_number", "nvmf_create_subsystem.model_number", "nvmf_create_subsystem.admin_label",
		"nvmf_subsystem_add_ns.namespace.nguid", "nvmf_subsystem_add_ns.namespace.eui64",
		"iscsi_create_target_node.alias_name",
		"spdkgate_key_add.secret", "spdkgate_lvol_snapshot.barrier.id",
	}
)
