// Package kubelet registers the driver with kubelet, in place of a sidecar. It implements kubelet's
// registration service. Package kubelet must not depend on the CSI services or the Kubernetes API.
package kubelet
