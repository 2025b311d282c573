// Package config reads what configures the controller: config.json, with the storage servers,
// placement and checks, and secret.json, with the credentials for the storage servers' proxies.
// Both are strict, and as spdk-csi has them. Fields and their comments are the reference of the
// manual (docs/csi-reference.md).
//
// It must not know the services, how targets are called, or nodes, which have flags only.
package config
