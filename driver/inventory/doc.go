// Package inventory describes what storage servers have: lvstores, volumes and exports. The
// controller reads it, the command spdk-csi inventory prints it as JSON, and the kubectl plugin
// shows it.
//
// It contains only values, so that a program that shows an inventory need not include an SPDK
// client. It must not know how targets are read, or how the values are shown.
package inventory
