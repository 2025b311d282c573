// Package kubernetes is what the node plugin does with the Kubernetes API: it removes the node's
// startup taint, waits until a node that is drained has no volumes left, and reads the node's
// labels. It calls four methods of the API itself. It knows neither CSI's services nor devices,
// mounts and targets. Everything in it is optional: the driver works without access to the API.
package kubernetes
