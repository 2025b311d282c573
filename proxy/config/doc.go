// Package config is spdk-proxy's configuration: the keys of its file, strict YAML, the files that
// it names, warnings, and the command line of SPDK's rpc_http_proxy.py.
//
// [Load] reads a file and checks what can be checked without the schema of SPDK's methods. A
// [Config] returns values for the stages: users for package authn, roles for policy, tenants for
// tenancy. It makes no stage.
//
// The package may not know package proxy, which uses it.
package config
