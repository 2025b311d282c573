// Package config implements spdk-proxy's configuration: its keys, strict YAML decoding, the files
// it names, warnings, and the command line of SPDK's rpc_http_proxy.py.
//
// [Load] reads a file, and performs all checks that do not need the schema of SPDK's methods. The
// methods of [Config] return values for the stages: users for package authn, roles for policy, and
// tenants for tenancy. They do not create the stages.
//
// The package must not import package proxy, which uses it.
package config
