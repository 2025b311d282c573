// Package monitor watches the volumes that are staged on this node. It detects lost paths, targets
// that the kernel is trying to reach again, devices that the kernel has given up on, file systems
// that are read-only or have been shut down, and mounts of removed devices.
//
// Every few seconds, it reads sysfs, the mount table and each mounted file system, without
// accessing any devices. Each read has a time limit, and only one read of each volume runs at a
// time. A read that hangs is itself a finding. Findings are kept for the health calls, exported as
// metrics, written to a status file for the command node-status, and logged when they change.
//
// While no call is working on a volume, the monitor restores those of the volume's connections that
// the kernel has given up on. As in package connect, a connection is restored only if it leads to
// the same volume. The monitor never mounts, unmounts or formats volumes; NodePublishVolume does
// that.
//
// Package monitor must not depend on CSI, gRPC, records on disk, Kubernetes or targets' RPCs.
package monitor
