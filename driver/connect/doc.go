// Package connect attaches exports of SPDK targets to this node, and detaches them.
//
// An [Export] describes what to attach; [ParseExport] parses it once from a volume's context map. A
// [Connector] attaches it and returns a [Device]: a block device of this node whose identity
// (subsystem NQN and namespace UUID, or target IQN and LUN) was verified in sysfs. The package
// never finds devices through udev's links, because the links match by name and may be stale.
//
// Every call can be repeated: Connect finds an existing connection, and Disconnect succeeds if
// nothing is attached. If a call reaches its deadline, its error reports what the call was waiting
// for, and a later call continues from the current state of the kernel.
//
// The package supports NVMe over Fabrics, iSCSI and loop devices. Package connect must not depend
// on CSI, gRPC, the target's RPCs, or file systems on the device.
package connect
