// Package mount makes a block device of this node available at a path. It creates a file system,
// mounts it at a staging path, bind mounts it at target paths, and undoes these mounts. It also
// grows file systems and reads their statistics.
//
// Its primary goal is not to lose data. It creates a file system only on a device that it has read
// and found to be empty, and only if the caller permits formatting ([Stage.MayFormat]). An
// unreadable device counts as not empty. The package finds mounts by reading mountinfo rather than
// by calling stat, which fails on broken mounts. The package removes only empty directories and
// files.
//
// Calls can be repeated: a step that is already done is skipped, and a different mount at the path
// is an error. When its context ends, a call returns immediately, and its error reports what is
// still running. Until the kernel or the tool has finished, further calls on the same object fail
// with [ErrBusy].
//
// Package mount must not depend on CSI, gRPC, NVMe, iSCSI or targets.
package mount
