//go:build tools

package main

// The image that Kubernetes' tests run their scripts in. Named here so that go.sum has its modules.
import _ "k8s.io/kubernetes/test/images/agnhost"
