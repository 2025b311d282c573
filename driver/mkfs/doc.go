// Package mkfs defines the file systems that volumes can have, the mkfs and mount options that a
// class may set, and the arguments for creating a new file system.
//
// Only harmless options are allowed: no option names another device, overwrites data, or creates a
// file system that older kernels on nodes refuse without giving a reason. The controller checks the
// options before it creates a volume, and the node checks them before it formats a volume.
//
// Package mkfs must not depend on devices, mounts, CSI or its callers: it only converts strings.
package mkfs
