// Package kubernetes makes the node plugin's calls to the Kubernetes API. It removes the node's
// startup taint, waits until a drained node has no volumes left, and reads the node's labels. It
// calls the four API methods directly. It knows neither CSI's services nor devices, mounts and
// targets. Everything in it is optional: the driver works without access to the API.
package kubernetes
