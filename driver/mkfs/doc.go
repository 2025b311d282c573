// Package mkfs defines the file systems of volumes, the options of mkfs and of mounts that a class
// may set, and the arguments that create a new file system.
//
// Options come from a list of those that cannot harm: none names another device, overwrites data,
// or creates a file system that nodes' older kernels refuse without giving a reason. The controller
// checks them before it creates a volume, and the node before it formats one.
//
// Package mkfs must not depend on devices, mounts, CSI or its callers: it only converts texts.
package mkfs
