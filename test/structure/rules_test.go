package structure

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A rule forbids some packages some imports.
type rule struct {
	who    string
	binds  func(pkg) bool
	not    func(from, path string) bool
	reason string
	// linked applies the rule also to indirect dependencies of the package.
	linked bool
	// tests applies the rule also to the package's test files.
	tests bool
}

const (
	csiProtobufs = "github.com/container-storage-interface/spec"
	grpc         = "google.golang.org/grpc"
)

// stages are the stages of the proxy in their order, the packages that restore a restarted target, and the one that freezes
// volumes.
var stages = []string{"proxy/authn", "proxy/policy", "proxy/tenancy", "proxy/target", "proxy/persist", "proxy/keys", "proxy/quiesce"}

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
		reason: "it filters a target's answers for a tenant, so a reviewer must be able to read all code that it depends on",
	},
	{
		who:    "rpcschema knows neither its client nor its users",
		binds:  is("rpcschema"),
		not:    others("rpcschema/jsonrpc", "rpcschema/jsonwalk"),
		linked: true,
		reason: "client, proxy, simulation and generator all depend on the document: an import of one of them would be a cycle, and would link it into the others",
	},
	{
		who:    "rpcschema/... knows neither proxy nor driver",
		binds:  in("rpcschema"),
		not:    anyOf("proxy", "driver", "cmd"),
		linked: true, tests: true,
		reason: "other projects must be able to use schema, client and simulated target without spdk-proxy and spdk-csi",
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
		reason: "imports go from cmd to service, proxy, and then configuration and stages: a package that knew the server could be neither read nor tested without it",
	},
	{
		who:    "package proxy knows neither its service nor what only commands use",
		binds:  is("proxy"),
		not:    anyOf("proxy/service", "proxy/storecheck", "proxy/blobstore", "proxy/grant"),
		linked: true,
		reason: "it handles requests: how a process starts, and what commands do without a server, is decided in the packages above it",
	},
	{
		who:    "proxy/config makes no stage and does not know the server",
		binds:  in("proxy/config"),
		not:    roomsOfProxyBut("proxy/config", "proxy/authn", "proxy/policy", "proxy/tenancy"),
		linked: true,
		reason: "it decodes a file into the values of authn, policy and tenancy; its callers make the stages and the server from these values",
	},
	{
		who:    "proxy/cert and proxy/clientconn know no other room",
		binds:  in("proxy/cert", "proxy/clientconn"),
		not:    func(from, path string) bool { return within(path, rooms...) && path != from },
		linked: true,
		reason: "they handle connections before authentication: they take only paths and numbers, so they can be reviewed and tested alone",
	},
	{
		who:    "proxy/localsocket knows no other room",
		binds:  in("proxy/localsocket"),
		not:    func(from, path string) bool { return within(path, rooms...) && path != from },
		linked: true,
		reason: "the kernel decides who is at the other end of a socket: the code that asks it takes a path and a connection, so it can be reviewed alone",
	},
	{
		who:    "proxy/session and proxy/console know no other room",
		binds:  in("proxy/session", "proxy/console"),
		not:    func(from, path string) bool { return within(path, rooms...) && path != from },
		linked: true,
		reason: "ids of sessions and files for everybody must be reviewable alone: who a user is, and what a user may do, is decided by the stages",
	},
	{
		who:    "proxy/dryrun knows the configuration and the stages that need no target",
		binds:  in("proxy/dryrun"),
		not:    roomsOfProxyBut("proxy/dryrun", "proxy/config", "proxy/authn", "proxy/policy", "proxy/tenancy"),
		linked: true,
		reason: "an administrator must be able to test a changed role on any machine, without a server, a target or secrets",
	},
	{
		who:    "proxy/auditlog knows the schema and the roles that it writes",
		binds:  in("proxy/auditlog"),
		not:    roomsOfProxyBut("proxy/auditlog", "proxy/policy"),
		linked: true,
		reason: "its callers pass the decision; its reader works on logs of any host, without a server or a configuration",
	},
	{
		who:   "metrics do not know what they count",
		binds: in("proxy/metrics", "driver/metrics"),
		not: func(_, path string) bool {
			return within(path, "proxy", "driver", "rpcschema", "cmd", grpc) && !within(path, "proxy/metrics", "driver/metrics")
		},
		reason: "labels are bounded in one place, by constants and by names from the caller; the caller decides which event happened",
	},
	{
		who:    "proxy does not know the driver",
		binds:  in("proxy"),
		not:    anyOf("driver", "cmd", csiProtobufs, grpc),
		linked: true, tests: true,
		reason: "the proxy treats all clients alike, and is installed without Kubernetes; code that both need belongs into rpcschema",
	},
	{
		who:    "driver does not know the proxy",
		binds:  in("driver"),
		not:    anyOf("proxy", "cmd"),
		linked: true, tests: true,
		reason: "the driver also works through rpc_http_proxy.py; tests of both belong into test/",
	},
	{
		who:    "the packages below CSI's services do not know gRPC",
		binds:  in("driver/class", "driver/placement", "driver/volume", "driver/export", "driver/readback", "driver/hostauth", "driver/connect", "driver/mount", "driver/luks", "driver/mkfs", "driver/monitor", "driver/operation"),
		not:    anyOf(grpc, csiProtobufs),
		linked: true,
		reason: "their errors are kinds of their own, and become gRPC codes in one place of package driver",
	},
	{
		who:    "controller and node do not import each other",
		binds:  in("driver/controller", "driver/node"),
		not:    otherService,
		linked: true, tests: true,
		reason: "they run in different processes and communicate only by CSI's messages",
	},
	{
		who:    "package driver does not know the services",
		binds:  is("driver"),
		not:    anyOf("driver/controller", "driver/node"),
		linked: true,
		reason: "the server gets the services as arguments; the services' tests import it",
	},
	{
		who:    "node knows nothing of targets",
		binds:  in("driver/node", "driver/request"),
		not:    anyOf("rpcschema", "driver/volume", "driver/export", "driver/readback", "driver/placement", "driver/class"),
		linked: true,
		reason: "nodes never call a proxy: for each volume, the controller decides what a node may connect to",
	},
	{
		who:    "connect, mount and luks know neither SPDK's calls nor the controller's packages",
		binds:  in("driver/connect", "driver/mount", "driver/luks"),
		not:    anyOf("rpcschema", "driver/volume", "driver/export", "driver/placement"),
		linked: true,
		reason: "they run on nodes, which never call a proxy: they get everything from the controller",
	},
	{
		who:    "class imports the standard library",
		binds:  in("driver/class"),
		not:    func(_, path string) bool { return !standard(path) },
		reason: "a Class is a value that every package of the controller takes; how it is used is decided there",
	},
	{
		who:    "mkfs imports the standard library",
		binds:  in("driver/mkfs"),
		not:    func(_, path string) bool { return !standard(path) },
		reason: "controller and node check the same options, and a reviewer must be able to read what mkfs may get",
	},
	{
		who:    "hostauth imports the standard library",
		binds:  in("driver/hostauth"),
		not:    func(_, path string) bool { return !standard(path) },
		reason: "it handles secrets on controller and node: a reviewer must be able to read all of it",
	},
	{
		who:    "kubernetes imports the standard library",
		binds:  in("driver/kubernetes"),
		not:    func(_, path string) bool { return !standard(path) },
		reason: "it holds a token of the cluster: a reviewer must be able to read all code that uses it",
	},
	{
		who:    "kubelet knows no other room",
		binds:  in("driver/kubelet"),
		not:    func(from, path string) bool { return within(path, rooms...) && path != from },
		linked: true,
		reason: "it tells kubelet a name and a path, whatever is served there",
	},
	{
		who:   "operation does not know what it runs",
		binds: in("driver/operation"),
		not: func(_, path string) bool {
			return !standard(path) && !within(path, "golang.org/x/sync")
		},
		reason: "connect and mount share it; devices and mounts are handled there",
	},
	{
		who:    "connect and mount do not know each other",
		binds:  in("driver/connect", "driver/mount"),
		not:    otherHalf,
		linked: true,
		reason: "they have only the block device in common: raw block volumes are never mounted",
	},
	{
		who:    "luks knows neither transports nor file systems",
		binds:  is("driver/luks"),
		not:    roomsOfDriverBut("driver/luks", "driver/hostauth", "driver/operation"),
		linked: true,
		reason: "it gets a block device and makes another one of it; what is on a device is read by its Prober",
	},
	{
		who:    "monitor knows only what connect and mount tell",
		binds:  is("driver/monitor"),
		not:    roomsOfDriverBut("driver/monitor", "driver/connect", "driver/mount", "driver/operation", "driver/metrics"),
		reason: "it watches what the node service has staged, and must not stage, mount or record anything by itself",
	},
	{
		who:    "placement makes no calls",
		binds:  in("driver/placement"),
		not:    func(_, path string) bool { return !standard(path) && !within(path, "driver/placement", "driver/class") },
		linked: true,
		reason: "it sorts the answers of the targets; without the client, it makes no calls and can be tested with values",
	},
	{
		who:    "export does not know how volumes are made",
		binds:  in("driver/export", "driver/readback"),
		not:    anyOf("driver/volume", "driver/placement", "driver/class", "driver/connect", "driver/mount"),
		linked: true,
		reason: "it knows a volume only by its UUID; volume imports it, because an exported volume must be neither deleted nor written to while SPDK changes it",
	},
	{
		who:    "doctor knows neither calls nor how targets are reached",
		binds:  is("driver/doctor"),
		not:    anyOf(grpc, csiProtobufs, "rpcschema", "driver/placement", "driver/class", "driver/connect", "driver/mount", "driver/controller", "driver/metrics"),
		reason: "it judges what volume and export tell, and mends by their methods, which are safe to repeat; it opens no connection by itself",
	},
	{
		who:    "move knows neither targets nor transports",
		binds:  is("driver/move"),
		not:    anyOf(grpc, "rpcschema", "driver/placement", "driver/class", "driver/volume", "driver/mount", "driver/controller"),
		reason: "it calls CSI's controller service and a connector, whose checks keep a volume that is in use from being moved",
	},
	{
		who:    "what the kubectl plugin links runs on every system, and knows no target",
		binds:  in("driver/kubectl", "driver/inventory", "driver/hostname", "cmd/kubectl-spdkgate"),
		not:    roomsOfDriverBut("driver/kubectl", "driver/inventory", "driver/hostname", "driver/request", "driver/mkfs"),
		linked: true,
		reason: "it runs on workstations, which reach targets only through the controller's pod",
	},
	{
		who:    "volume does not know placement",
		binds:  in("driver/volume"),
		not:    anyOf("driver/placement", "driver/connect", "driver/mount"),
		linked: true,
		reason: "it manages a volume on one target; its callers have chosen the target",
	},
	{
		who: "only the services, their server and their fixtures import the CSI protobufs",
		binds: func(p pkg) bool {
			return p.path() != "driver" && !within(p.path(), "driver/controller", "driver/node", "driver/request", "driver/drivertest", "driver/move", "test", "deploy")
		},
		not:    anyOf(csiProtobufs),
		reason: "requests are parsed once, in these packages; all others get parsed values",
	},
	{
		who:    "only tests, the demo and spdk-sim use the simulated target",
		binds:  func(p pkg) bool { return !within(p.path(), "rpcschema/spdktest", "test", "cmd/spdk-sim") },
		not:    anyOf("rpcschema/spdktest"),
		linked: true,
		reason: "a simulation that is linked into a program could answer instead of a target by mistake",
	},
	{
		who:    "only tests use broken calls",
		binds:  func(p pkg) bool { return !within(p.path(), "rpcschema/sample/broken", "test") },
		not:    anyOf("rpcschema/sample/broken"),
		linked: true,
		reason: "calls that SPDK refuses, or that crash it, do not belong into a program that sends calls",
	},
	{
		who:    "only tests make keys for tests",
		binds:  func(p pkg) bool { return !within(p.path(), "proxy/authn/authntest", "test") },
		not:    anyOf("proxy/authn/authntest"),
		linked: true,
		reason: "code that signs any token does not belong into a program that trusts signatures",
	},
	{
		who:    "only tests use the driver's fixtures",
		binds:  func(p pkg) bool { return !within(p.path(), "driver/drivertest", "test") },
		not:    anyOf("driver/drivertest"),
		linked: true,
		reason: "callers that fail or interrupt calls do not belong into a program that manages volumes",
	},
	{
		who:    "the driver's fixtures know no package that is tested with them, except export and what it needs",
		binds:  is("driver/drivertest"),
		not:    roomsOfDriverBut("driver/drivertest", "driver/export", "driver/readback", "driver/hostauth"),
		linked: true,
		reason: "internal tests of a room import the fixtures, so the fixtures cannot import the room",
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
		reason: "test/ has the tests of more than one package: no package depends on it",
	},
	{
		who:   "cmd/... is flags and wiring",
		binds: in("cmd"),
		not: func(_, path string) bool {
			own := within(path, "proxy", "driver", "rpcschema")
			return !standard(path) && !own && !within(path, "github.com/spf13", "github.com/coreos/go-systemd/v22", "k8s.io/klog/v2", "golang.org/x/term")
		},
		reason: "code in a main package cannot be imported, so it can be neither reused nor tested from outside",
	},
	{
		who:    "cmd/spdk-proxy does not know the driver",
		binds:  in("cmd/spdk-proxy"),
		not:    anyOf("driver", "cmd/spdk-csi", csiProtobufs, grpc, "k8s.io"),
		linked: true,
		reason: "it runs on storage servers, and must not depend on Kubernetes",
	},
	{
		who:    "spdk-schema and spdk-sim know neither proxy nor driver",
		binds:  in("cmd/spdk-schema", "cmd/spdk-sim", "rpcschema/schemacmd"),
		not:    anyOf("proxy", "driver", "cmd/spdk-proxy", "cmd/spdk-csi"),
		linked: true,
		reason: "they are for users without spdk-proxy and spdk-csi",
	},
	{
		who:    "cmd/spdk-csi does not know the proxy",
		binds:  in("cmd/spdk-csi"),
		not:    anyOf("proxy", "cmd/spdk-proxy"),
		linked: true,
		reason: "it runs in the cluster, and must not contain a server for SPDK's socket",
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
			assert.NotZero(t, bound, "the rule applies to no package: correct or remove it")
		})
	}
}
