// Package kubelet registers the driver with kubelet, so that no sidecar is needed for that. It
// knows kubelet's registration service, but neither CSI's services nor the Kubernetes API.
package kubelet
