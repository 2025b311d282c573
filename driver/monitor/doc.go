// Package monitor watches the volumes that are staged on this node. It detects lost paths, targets
// that the kernel is trying to reconnect to, devices that the kernel has given up on, file systems
// that are read-only or shut down, and mounts of removed devices.
//
// Every few seconds, it reads sysfs, the mount table and each mounted file system, without
// accessing any devices. Each read has a time limit, and only one read of each volume runs at a
// time. A hanging read is itself a finding. The monitor reports findings through the health calls,
// as metrics, in a status file for the command node-status, and, when they change, in the log.
//
// While no call is working on a volume, the monitor restores the volume's connections that the
// kernel has given up on. As in package connect, a connection is restored only if it leads to the
// same volume. The monitor never mounts, unmounts or formats volumes; NodePublishVolume does that.
//
// Package monitor must not depend on CSI, gRPC, records on disk, Kubernetes or the RPCs of targets.
package monitor
