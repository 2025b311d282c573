package structure

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A rule forbids certain imports in certain packages.
type rule struct {
	who    string
	binds  func(pkg) bool
	not    func(from, path string) bool
	reason string
	// linked means that the rule also applies to the package's indirect dependencies.
	linked bool
	// tests means that the rule also applies to the package's test files.
	tests bool
}

const (
	csiProtobufs = "github.com/container-storage-interface/spec"
	grpc         = "google.golang.org/grpc"
)

var rules = []rule{
	{
		who:   "rpcschema/jsonrpc imports the standard library and a JSON parser",
		binds: in("rpcschema/jsonrpc"),
		not: func(_, path string) bool {
			return !standard(path) && !within(path, "github.com/go-json-experiment/json")
		},
		reason: "it parses bytes from unauthenticated clients, so a reviewer must be able to read all code that it depends on",
	},
	{
		who:   "rpcschema/jsonwalk imports the standard library and a JSON parser",
		binds: in("rpcschema/jsonwalk"),
		not: func(_, path string) bool {
			return !standard(path) && !within(path, "github.com/go-json-experiment/json")
		},
		reason: "it filters a target's responses for a tenant, so a reviewer must be able to read all code that it depends on",
	},
	{
		who:    "rpcschema imports neither its client nor its users",
		binds:  is("rpcschema"),
		not:    others("rpcschema/jsonrpc", "rpcschema/jsonwalk"),
		linked: true,
		reason: "client, proxy, simulation and generator all depend on the document; importing one of them would create a cycle, and link it into the others",
	},
	{
		who:    "rpcschema/... imports neither proxy nor driver",
		binds:  in("rpcschema"),
		not:    anyOf("lvstore", "proxy", "driver", "cmd"),
		linked: true, tests: true,
		reason: "other projects must be able to use the schema, the client and the simulated target without spdk-proxy and spdk-csi",
	},
	{
		who:    "lvstore/blobstore imports the standard library",
		binds:  in("lvstore/blobstore"),
		not:    func(_, path string) bool { return !standard(path) },
		reason: "it reads any device through an io.ReaderAt; its users, including programs without a target, decide how to reach a device and how to use the data",
	},
	{
		who:    "lvstore/... imports neither proxy nor driver",
		binds:  in("lvstore"),
		not:    anyOf("proxy", "driver", "cmd"),
		linked: true, tests: true,
		reason: "a device has the same contents for all readers, so proxy, driver and commands may all use these packages",
	},
	{
		who:   "metrics do not depend on what they count",
		binds: in("proxy/metrics", "driver/metrics"),
		not: func(_, path string) bool {
			return within(path, "proxy", "driver", "rpcschema", "cmd", grpc) && !within(path, "proxy/metrics", "driver/metrics")
		},
		reason: "labels are limited in one place, by constants and by names from the caller; the caller decides which event happened",
	},
	{
		who:    "proxy does not import the driver",
		binds:  in("proxy"),
		not:    anyOf("driver", "cmd", csiProtobufs, grpc),
		linked: true, tests: true,
		reason: "the proxy treats all clients alike, and is installed without Kubernetes; code that both need belongs in rpcschema",
	},
	{
		who:    "only tests, the demo and spdk-sim use the simulated target",
		binds:  func(p pkg) bool { return !within(p.path(), "rpcschema/spdktest", "test", "cmd/spdk-sim") },
		not:    anyOf("rpcschema/spdktest"),
		linked: true,
		reason: "a program that contains the simulation could use it instead of a target by mistake",
	},
	{
		who:    "only tests use broken calls",
		binds:  func(p pkg) bool { return !within(p.path(), "rpcschema/sample/broken", "test") },
		not:    anyOf("rpcschema/sample/broken"),
		linked: true,
		reason: "calls that SPDK refuses, or that crash SPDK, do not belong in a program that sends calls",
	},
	{
		who:    "only tests create keys for tests",
		binds:  func(p pkg) bool { return !within(p.path(), "proxy/authn/authntest", "test") },
		not:    anyOf("proxy/authn/authntest"),
		linked: true,
		reason: "code that signs any token does not belong in a program that trusts signatures",
	},
	{
		who:    "only tests write lvstore metadata",
		binds:  func(p pkg) bool { return !within(p.path(), "lvstore/blobstore/blobstoretest", "test") },
		not:    anyOf("lvstore/blobstore/blobstoretest"),
		linked: true,
		reason: "a program that can write lvstore metadata could destroy an lvstore by mistake",
	},
	{
		who:    "only tests record the log",
		binds:  func(p pkg) bool { return !within(p.path(), "proxy/logtest", "test") },
		not:    anyOf("proxy/logtest"),
		linked: true,
		reason: "it keeps the whole log in memory, and imports package testing",
	},
	{
		who:    "no package imports test/",
		binds:  func(p pkg) bool { return !within(p.path(), "test") },
		not:    anyOf("test"),
		tests:  true,
		reason: "test/ contains tests of several packages, so no package depends on it",
	},
	{
		who:   "cmd/... contains only flags and wiring",
		binds: in("cmd"),
		not: func(_, path string) bool {
			own := within(path, "proxy", "driver", "lvstore", "rpcschema")
			return !standard(path) && !own && !within(path, "github.com/spf13", "github.com/coreos/go-systemd/v22", "k8s.io/klog/v2", "golang.org/x/term")
		},
		reason: "code in a main package cannot be imported, so it can be neither reused nor tested from outside",
	},
	{
		who:    "cmd/spdk-proxy does not import the driver",
		binds:  in("cmd/spdk-proxy"),
		not:    anyOf("driver", "cmd/spdk-csi", csiProtobufs, grpc, "k8s.io"),
		linked: true,
		reason: "it runs on storage servers, and must not depend on Kubernetes",
	},
	{
		who:    "spdk-schema and spdk-sim import neither proxy nor driver",
		binds:  in("cmd/spdk-schema", "cmd/spdk-sim", "rpcschema/schemacmd"),
		not:    anyOf("proxy", "driver", "cmd/spdk-proxy", "cmd/spdk-csi"),
		linked: true,
		reason: "they are for users without spdk-proxy and spdk-csi",
	},
	{
		who:    "cmd/spdk-csi does not import the proxy",
		binds:  in("cmd/spdk-csi"),
		not:    anyOf("proxy", "cmd/spdk-proxy"),
		linked: true,
		reason: "it runs in the cluster, and must not contain a server for SPDK's socket",
	},
}

var allRules = slices.Concat(rules, proxyRules, driverRules)

func TestImportsFollowTheRules(t *testing.T) {
	for _, r := range allRules {
		t.Run(r.who, func(t *testing.T) {
			bound := 0
			for _, p := range packages(t) {
				if r.binds(p) {
					bound++
				}
				if found := r.broken(p); len(found) > 0 {
					t.Errorf("%s must not know %s.\nThe rule: %s: %s.", p.path(), strings.Join(found, ", "), r.who, r.reason)
				}
			}
			assert.NotZero(t, bound, "the rule applies to no package: correct or remove it")
		})
	}
}
