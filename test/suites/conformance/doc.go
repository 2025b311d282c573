// Package conformance runs the suite of rpcschema/spdktest/conformance through spdk-proxy. A target
// must behave in the same way with and without the proxy, except for calls that the proxy refuses
// because of the schema. This package is separate from the suite, because the suite must not depend
// on the proxy.
package conformance
