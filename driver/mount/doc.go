// Package mount makes a block device of this node available at a path. It creates a file system,
// mounts it at a staging path, bind mounts it at target paths, and undoes each of these steps.
// Package mount also grows file systems and reads their statistics.
//
// Its most important goal is not to lose data. It creates a file system only on a device that it
// has read and found to be empty, and only if the caller permits it ([Stage.MayFormat]). A device
// that cannot be read counts as not empty. It finds mounts by reading mountinfo rather than by
// calling stat, which fails on broken mounts. The package removes only empty directories and files.
//
// Calls can be repeated: a step that is already done is skipped, and a different mount at the path
// is an error. A call whose context ends returns immediately, and its error reports what was still
// running. Until the kernel or the tool has finished, further calls on the same object fail with
// [ErrBusy].
//
// The package handles devices, ext4, xfs, btrfs and mounts. Package mount must not depend on CSI,
// gRPC, NVMe, iSCSI or targets.
package mount
