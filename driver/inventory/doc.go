// Package inventory describes the contents of storage servers: lvstores, volumes, exports and
// fenced nodes. It also describes the volumes staged on a node. The controller and the node plugin
// collect this information, the commands spdk-csi inventory and spdk-csi node-status print it as
// JSON, and the kubectl plugin shows it.
//
// Package inventory contains only data types, so that programs that show an inventory need not
// include an SPDK client. Package inventory must not depend on how targets are read, or how the
// values are shown.
package inventory
