// Package deploy tests what the driver is deployed with: manifests and image builds. Manifests are
// decoded strictly into Kubernetes' own types, and held against what the programs read and accept;
// image builds are run as far as that goes without a container engine.
package deploy
