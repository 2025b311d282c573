// Package kubernetes makes the driver's calls to the Kubernetes API. For the node plugin, it
// removes the node's startup taint, waits until a drained node has no volumes left, and reads the
// node's labels. For the controller, it lists claims and creates Events about them. Before the
// driver is uninstalled, it lists the remaining volumes and snapshots. Other packages read and
// change objects with [Client.Send]. The package calls the REST API directly. All of these calls
// are optional: the driver works without access to the API. Package kubernetes must not depend on
// CSI services, devices, mounts or targets.
package kubernetes
