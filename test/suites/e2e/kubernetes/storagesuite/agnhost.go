//go:build tools

package main

// Kubernetes' tests run their scripts in this image. It is imported here so that go.sum lists its
// modules.
import _ "k8s.io/kubernetes/test/images/agnhost"
