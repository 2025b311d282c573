// Package config reads the controller's configuration: config.json, with the storage servers,
// placement and checks, and secret.json, with the credentials for the storage servers' proxies.
// Both are parsed strictly, and have spdk-csi's format. The fields and their comments become the
// manual's reference (docs/csi-reference.md).
//
// Package config must not depend on the services, how targets are called, or nodes, which are
// configured only by flags.
package config
