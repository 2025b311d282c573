// Package config is spdk-proxy's configuration: the keys of its file, strict YAML, the
// files that it names, warnings, and the command line of SPDK's rpc_http_proxy.py.
//
// [Load] reads a file and checks what can be checked without the schema of SPDK's
// methods. A [Config] tells what it says as values that the stages take: users as
// package authn knows them, roles as policy does, tenants as tenancy does. It makes no
// stage.
//
// It may not know package proxy, which is made of it.
package config
