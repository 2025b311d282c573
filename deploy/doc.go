// Package deploy tests manifests, image builds and packages. It decodes manifests strictly into
// Kubernetes' own types, and checks that the programs accept them. It runs the image build steps
// that do not need a container engine.
package deploy
