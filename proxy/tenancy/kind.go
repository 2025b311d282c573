package tenancy

import "slices"

// What a value names (x-spdk-resource) decides how it is treated. A kind that
// stands nowhere here can belong to no tenant: files of the target's host,
// controllers, iSCSI's groups, and whatever the schema may learn to name.
var (
	// held kinds are objects of the target. One that is not theirs is answered
	// as if it did not exist.
	held = []string{"bdev", "lvstore", "lvstore-uuid", "nqn", "iqn", "key"}
	// made kinds are names that the call creates, with the kind that they then
	// are. One that is not theirs is refused; whether it is taken is not told.
	made = map[string]string{"new-bdev": "bdev", "new-lvstore": "lvstore", "new-nqn": "nqn", "new-iqn": "iqn", "new-key": "key"}
	// granted kinds are no objects, and the tenant's configuration lists them.
	granted = []string{"address", "host-nqn"}
	// inner kinds belong to the object that the call, or the item of a result,
	// is about: a volume's own name in its lvstore, who may log in.
	inner = []string{"lvol-name", "initiator"}
)

func isHeld(kind string) bool    { return slices.Contains(held, kind) }
func isMade(kind string) bool    { return made[kind] != "" }
func isGranted(kind string) bool { return slices.Contains(granted, kind) }
func isInner(kind string) bool   { return slices.Contains(inner, kind) }

// scopes says whether a parameter of this kind binds the call to an object that
// can be somebody's.
func scopes(kind string) bool { return isHeld(kind) || isMade(kind) }

// What the schema cannot tell.
var (
	// harmless methods give texts that name nobody's objects.
	harmless = []string{"spdk_get_version", "rpc_get_methods", "nvmf_get_transports"}

	// lvstoreMethods change which lvstores there are, besides those that name a new one.
	lvstoreMethods = []string{"bdev_lvol_delete_lvstore"}

	// resizing methods change the size of bdevs that may be the origin of a volume.
	resizing = []string{"bdev_null_resize", "bdev_rbd_resize", "bdev_daos_resize"}

	// deferredTargets are methods that take the names of bdevs that do not exist yet, and act on
	// them when they come: then they may be somebody else's.
	deferredTargets = []string{"bdev_examine", "bdev_split_create", "bdev_error_create"}

	// harmlessTexts are texts without a fixed set of values that name nothing:
	// what SPDK reports of itself to hosts.
	harmlessTexts = []string{
		"nvmf_create_subsystem.serial_number", "nvmf_create_subsystem.model_number", "nvmf_create_subsystem.admin_label",
		"nvmf_subsystem_add_ns.namespace.nguid", "nvmf_subsystem_add_ns.namespace.eui64",
		"iscsi_create_target_node.alias_name",
		"spdkgate_key_add.secret",
	}
)
