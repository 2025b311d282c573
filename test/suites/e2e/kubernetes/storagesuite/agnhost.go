//go:build tools

package main

// Kubernetes' tests run their scripts in the image agnhost. Importing the package makes go.sum list
// the image's modules.
import _ "k8s.io/kubernetes/test/images/agnhost"
