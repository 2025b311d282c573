// Package deploy tests manifests, image builds and packages. It decodes manifests strictly into
// Kubernetes' own types and compares them with what the programs accept. It runs those image build
// steps that do not need a container engine.
package deploy
