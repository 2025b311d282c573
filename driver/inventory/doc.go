// Package inventory describes what storage servers have: lvstores, volumes, exports and fenced
// nodes. It also describes the volumes staged on a node. The controller and the node plugin read
// these facts, the commands spdk-csi inventory and spdk-csi node-status print them as JSON, and the
// kubectl plugin shows them.
//
// Package inventory contains only values, so that a program that shows an inventory need not
// include an SPDK client. Package inventory must not depend on how targets are read, or how the
// values are shown.
package inventory
