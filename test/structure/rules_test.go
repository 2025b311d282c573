package structure

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A rule binds some packages and refuses some imports to them.
type rule struct {
	who    string
	binds  func(pkg) bool
	not    func(from, path string) bool
	reason string
	// linked looks at everything the package is built from, not at its own imports alone: for
	// knowledge that must not come in through a third package either.
	linked bool
	// tests binds the package's test files too.
	tests bool
}

const (
	csiProtobufs = "github.com/container-storage-interface/spec"
	grpc         = "google.golang.org/grpc"
)

// stages of the proxy, in their order, what keeps a restarted target's things, and what freezes volumes.
var stages = []string{"proxy/authn", "proxy/policy", "proxy/tenancy", "proxy/target", "proxy/persist", "proxy/keys", "proxy/quiesce"}

var rules = []rule{
	{
		who:   "rpcschema/jsonrpc imports the standard library and a JSON parser",
		binds: in("rpcschema/jsonrpc"),
		not: func(_, path string) bool {
			return !standard(path) && !within(path, "github.com/go-json-experiment/json")
		},
		reason: "it decides what a byte sequence from a stranger means; what it stands on must fit into one reader's head",
	},
	{
		who:   "rpcschema/jsonwalk imports the standard library and a JSON parser",
		binds: in("rpcschema/jsonwalk"),
		not: func(_, path string) bool {
			return !standard(path) && !within(path, "github.com/go-json-experiment/json")
		},
		reason: "it decides what of a target's answer is left for a tenant; what it stands on must fit into one reader's head",
	},
	{
		who:    "rpcschema knows neither its client nor its users",
		binds:  is("rpcschema"),
		not:    others("rpcschema/jsonrpc", "rpcschema/jsonwalk"),
		linked: true,
		reason: "client, proxy, simulation and generator are all built on the document: it would be a circle, and each would pull in the others",
	},
	{
		who:    "rpcschema/... knows neither proxy nor driver",
		binds:  in("rpcschema"),
		not:    anyOf("proxy", "driver", "cmd"),
		linked: true, tests: true,
		reason: "others must be able to use schema, client and simulated target without either of our programs",
	},
	{
		who:    "the stages of the proxy do not know each other",
		binds:  in(stages...),
		not:    otherStages,
		linked: true,
		reason: "their order is written in one function of package proxy; a stage that calls another hides a decision from its reader",
	},
	{
		who: "only proxy/service and cmd know package proxy",
		binds: func(p pkg) bool {
			return within(p.path(), "proxy") && p.path() != "proxy" && !within(p.path(), "proxy/service")
		},
		not:    func(_, path string) bool { return path == "proxy" || within(path, "proxy/service") },
		linked: true,
		reason: "the direction is cmd, service, proxy, then configuration and stages: a room that knew the server could be neither read nor tested without it",
	},
	{
		who:    "package proxy knows neither its service nor the dry run",
		binds:  is("proxy"),
		not:    anyOf("proxy/service", "proxy/dryrun", "proxy/storecheck", "proxy/blobstore", "proxy/grant"),
		linked: true,
		reason: "it is one request's way: how a process is started, and what commands do without a server, is decided above it",
	},
	{
		who:    "proxy/config makes no stage and does not know the server",
		binds:  in("proxy/config"),
		not:    roomsOfProxyBut("proxy/config", "proxy/authn", "proxy/policy", "proxy/tenancy"),
		linked: true,
		reason: "the server is made of the configuration: it decodes into the values of authn, policy and tenancy, and whoever wants a stage of them makes it",
	},
	{
		who:    "proxy/cert and proxy/clientconn know no other room",
		binds:  in("proxy/cert", "proxy/clientconn"),
		not:    func(from, path string) bool { return within(path, rooms...) && path != from },
		linked: true,
		reason: "they stand between the network and whoever is not known yet: they take paths and numbers, and can be read and tested by themselves",
	},
	{
		who:    "proxy/dryrun knows the configuration and the stages that need no target",
		binds:  in("proxy/dryrun"),
		not:    roomsOfProxyBut("proxy/dryrun", "proxy/config", "proxy/authn", "proxy/policy", "proxy/tenancy"),
		linked: true,
		reason: "whoever changes a role must be able to try it on any machine: without a server, a target or secrets",
	},
	{
		who:    "proxy/auditlog knows the schema and the roles that it writes",
		binds:  in("proxy/auditlog"),
		not:    roomsOfProxyBut("proxy/auditlog", "proxy/policy"),
		linked: true,
		reason: "it is told what was decided; its reader works on logs of any host, without a server or a configuration",
	},
	{
		who:   "metrics know none of what they count",
		binds: in("proxy/metrics", "driver/metrics"),
		not: func(_, path string) bool {
			return within(path, "proxy", "driver", "rpcschema", "cmd", grpc) && !within(path, "proxy/metrics", "driver/metrics")
		},
		reason: "labels are bounded in one place, by closed sets and by names that are given; who counts decides what happened",
	},
	{
		who:    "proxy does not know the driver",
		binds:  in("proxy"),
		not:    anyOf("driver", "cmd", csiProtobufs, grpc),
		linked: true, tests: true,
		reason: "the proxy serves every client alike, and is installed without Kubernetes; what both need belongs to rpcschema",
	},
	{
		who:    "driver does not know the proxy",
		binds:  in("driver"),
		not:    anyOf("proxy", "cmd"),
		linked: true, tests: true,
		reason: "the driver also works through rpc_http_proxy.py; tests with both belong to test/",
	},
	{
		who:    "what CSI's services are made of knows nothing of gRPC",
		binds:  in("driver/class", "driver/placement", "driver/volume", "driver/export", "driver/readback", "driver/connect", "driver/mount", "driver/operation"),
		not:    anyOf(grpc, csiProtobufs),
		linked: true,
		reason: "their errors are kinds of their own, and become gRPC codes in one place of package driver",
	},
	{
		who:    "controller and node do not import each other",
		binds:  in("driver/controller", "driver/node"),
		not:    otherService,
		linked: true, tests: true,
		reason: "they run in different processes: all that they tell each other travels in CSI's messages",
	},
	{
		who:    "package driver does not know the services",
		binds:  is("driver"),
		not:    anyOf("driver/controller", "driver/node"),
		linked: true,
		reason: "the server serves what it is given; the services' tests stand on it",
	},
	{
		who:    "node knows nothing of targets",
		binds:  in("driver/node", "driver/request"),
		not:    anyOf("rpcschema", "driver/volume", "driver/export", "driver/readback", "driver/placement", "driver/class"),
		linked: true,
		reason: "nodes never speak to a proxy: what a node may connect to, the controller has decided for each volume",
	},
	{
		who:    "connect and mount know neither SPDK's calls nor what the controller is made of",
		binds:  in("driver/connect", "driver/mount"),
		not:    anyOf("rpcschema", "driver/volume", "driver/export", "driver/placement"),
		linked: true,
		reason: "they run on nodes, which never speak to a proxy: the controller tells them all they need",
	},
	{
		who:    "class imports the standard library",
		binds:  in("driver/class"),
		not:    func(_, path string) bool { return !standard(path) },
		reason: "a Class is a value that every room of the controller takes; what is done with it is theirs to know",
	},
	{
		who:   "operation knows nothing of what it runs",
		binds: in("driver/operation"),
		not: func(_, path string) bool {
			return !standard(path) && !within(path, "golang.org/x/sync")
		},
		reason: "connect and mount share it; what a device or a mount is belongs to them",
	},
	{
		who:    "connect and mount do not know each other",
		binds:  in("driver/connect", "driver/mount"),
		not:    otherHalf,
		linked: true,
		reason: "a block device is all that they have in common: raw block volumes are never mounted",
	},
	{
		who:    "placement makes nothing",
		binds:  in("driver/placement"),
		not:    func(_, path string) bool { return !standard(path) && !within(path, "driver/placement", "driver/class") },
		linked: true,
		reason: "it orders what the targets have answered: without their client it can neither ask nor make, and is tested on values",
	},
	{
		who:    "export does not know how volumes are made",
		binds:  in("driver/export", "driver/readback"),
		not:    anyOf("driver/volume", "driver/placement", "driver/class", "driver/connect", "driver/mount"),
		linked: true,
		reason: "a volume is its UUID there, whatever it is; volume asks it, as nothing that is exported may be deleted or written to while SPDK changes it",
	},
	{
		who:    "volume does not know placement",
		binds:  in("driver/volume"),
		not:    anyOf("driver/placement", "driver/connect", "driver/mount"),
		linked: true,
		reason: "it is a volume's life on one target; which target, others have decided",
	},
	{
		who: "only the services, their server and their fixtures import the CSI protobufs",
		binds: func(p pkg) bool {
			return p.path() != "driver" && !within(p.path(), "driver/controller", "driver/node", "driver/request", "driver/drivertest", "test", "deploy")
		},
		not:    anyOf(csiProtobufs),
		reason: "requests are parsed once, at the boundary; further in there are only parsed values",
	},
	{
		who:    "only tests, the demo and spdk-sim use the simulated target",
		binds:  func(p pkg) bool { return !within(p.path(), "rpcschema/spdktest", "test", "cmd/spdk-sim") },
		not:    anyOf("rpcschema/spdktest"),
		linked: true,
		reason: "a simulation that is linked into a program would one day answer in the place of a target",
	},
	{
		who:    "only tests break calls",
		binds:  func(p pkg) bool { return !within(p.path(), "rpcschema/sample/broken", "test") },
		not:    anyOf("rpcschema/sample/broken"),
		linked: true,
		reason: "calls that SPDK refuses, or does not survive, do not belong into a program that sends calls",
	},
	{
		who:    "only tests make keys for tests",
		binds:  func(p pkg) bool { return !within(p.path(), "proxy/authn/authntest", "test") },
		not:    anyOf("proxy/authn/authntest"),
		linked: true,
		reason: "who knows how to sign whatever is asked for does not belong into a program that believes signatures",
	},
	{
		who:    "only tests use the driver's fixtures",
		binds:  func(p pkg) bool { return !within(p.path(), "driver/drivertest", "test") },
		not:    anyOf("driver/drivertest"),
		linked: true,
		reason: "callers that fail or interrupt calls do not belong into a program that manages volumes",
	},
	{
		who:    "the driver's fixtures know no room that is tested with them but export",
		binds:  is("driver/drivertest"),
		not:    roomsOfDriverBut("driver/drivertest", "driver/export", "driver/readback"),
		linked: true,
		reason: "internal tests of a room import the fixtures, so the fixtures cannot import the room",
	},
	{
		who:    "only tests keep what is logged",
		binds:  func(p pkg) bool { return !within(p.path(), "proxy/logtest", "test") },
		not:    anyOf("proxy/logtest"),
		linked: true,
		reason: "it keeps the whole log in memory, and needs package testing",
	},
	{
		who:    "no package imports test/",
		binds:  func(p pkg) bool { return !within(p.path(), "test") },
		not:    anyOf("test"),
		tests:  true,
		reason: "test/ is what needs more than one package: nothing stands on it",
	},
	{
		who:   "cmd/... is flags and wiring",
		binds: in("cmd"),
		not: func(_, path string) bool {
			own := within(path, "proxy", "driver", "rpcschema")
			return !standard(path) && !own && !within(path, "github.com/spf13", "github.com/coreos/go-systemd/v22", "k8s.io/klog/v2", "golang.org/x/term")
		},
		reason: "what a main package knows cannot be imported, so it is neither reused nor tested from outside",
	},
	{
		who:    "cmd/spdk-proxy does not know the driver",
		binds:  in("cmd/spdk-proxy"),
		not:    anyOf("driver", "cmd/spdk-csi", csiProtobufs, grpc, "k8s.io"),
		linked: true,
		reason: "it runs on storage servers, and carries nothing of Kubernetes",
	},
	{
		who:    "spdk-schema and spdk-sim know neither proxy nor driver",
		binds:  in("cmd/spdk-schema", "cmd/spdk-sim", "rpcschema/schemacmd"),
		not:    anyOf("proxy", "driver", "cmd/spdk-proxy", "cmd/spdk-csi"),
		linked: true,
		reason: "they are for people who have only SPDK, or not even that",
	},
	{
		who:    "cmd/spdk-csi does not know the proxy",
		binds:  in("cmd/spdk-csi"),
		not:    anyOf("proxy", "cmd/spdk-proxy"),
		linked: true,
		reason: "it runs in the cluster, and holds no server of SPDK's socket",
	},
}

func TestImports(t *testing.T) {
	for _, r := range rules {
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
			assert.NotZero(t, bound, "the rule binds no package any more: correct it, or take it out")
		})
	}
}
