// Package deploy tests manifests, image builds and packages. It decodes manifests strictly into
// Kubernetes' own types and compares them with what the programs accept. It runs those steps of
// image builds that need no container engine.
package deploy
