// Package connect attaches what an SPDK target exports to this node, and takes it away again.
//
// An [Export] says what to attach; it is parsed once, by [ParseExport], from the context map that
// travels with a volume. A [Connector] turns it into a [Device]: a block device of this node whose
// identity (subsystem NQN and namespace UUID, or target IQN and LUN) was read back from sysfs.
// Device names are never guessed from udev's links: those match by text, and may be stale.
//
// Every call may be repeated: Connect finds what is connected already, Disconnect succeeds when
// nothing is left. A call that gives up at its deadline says what it was waiting for, and a later
// call picks up where the kernel is by then.
//
// The package knows NVMe over Fabrics, iSCSI and loop devices. It knows nothing of CSI or gRPC, of
// the target's RPCs, or of file systems on the device.
package connect
