// Package mount takes a block device of this node to a path: file system on the device, mount at a
// staging path, bind mount at a target path, and all the way back; growth and statistics besides.
//
// It exists to lose no data. A file system is only ever made on a device that was read and found
// empty, by a caller who said that it may be ([Stage.MayFormat]); a device that cannot be read
// counts as full. Whether something is mounted is read from mountinfo, never from stat, which
// fails on exactly the mounts that matter. Nothing is removed but an empty directory or file.
//
// Calls may be repeated: what is already as requested is left alone, what is there and different is an
// error. A call whose context ends returns at once and says what was still running; until the
// kernel or the tool has finished, further calls on the same object are refused with [ErrBusy].
//
// The package knows devices, ext4, xfs and mounts. It knows nothing of CSI or gRPC, of NVMe or
// iSCSI, or of targets.
package mount
