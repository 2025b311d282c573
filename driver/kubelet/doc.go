// Package kubelet registers the driver with kubelet, so that no sidecar is needed for that. It
// implements kubelet's registration service. It must not know CSI's services or the Kubernetes API.
package kubelet
