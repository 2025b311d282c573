// Package config reads the controller's configuration: config.json, with the storage servers,
// placement and checks, and secret.json, with the credentials for the storage servers' proxies.
// Both files are parsed strictly, and use the format of SPDK's spdk-csi. The fields and their
// comments become the manual's reference (docs/csi-reference.md).
//
// Package config must not depend on the CSI services, on how targets are called, or on nodes, which
// are configured only by flags.
package config
