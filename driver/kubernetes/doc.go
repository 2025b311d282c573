// Package kubernetes makes the driver's calls to the Kubernetes API. For the node plugin, it
// removes the node's startup taint, waits until a drained node has no volumes left, and reads the
// node's labels. Before the driver is uninstalled, it lists the volumes and snapshots that are
// left. It calls the API methods directly. It knows neither CSI's services nor devices, mounts and
// targets. Everything in it is optional: the driver works without access to the API.
package kubernetes
