// Package monitor watches only the volumes that are staged on this node. It finds lost paths,
// targets that the kernel tries to reach again, devices that it has given up, read-only or
// shut-down file systems, and mounts of removed devices.
//
// Every few seconds it reads sysfs, the mount table and each mounted file system, without access to
// a device. Each read is bounded, and each volume has only one at a time: a read that hangs is
// itself a finding. Findings are kept for the health calls, exported as metrics, written into a
// status file for the command node-status, and logged when they change.
//
// The monitor restores connections that the kernel has given up, while no call is working on the
// volume, and as connect does:
// only if the same volume is behind them. It never mounts, unmounts or formats anything:
// NodePublishVolume does so.
//
// It must not know CSI, gRPC, records on disk, Kubernetes or targets' RPCs.
package monitor
