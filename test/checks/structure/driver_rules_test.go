package structure

// driverRules are the rules for the CSI driver's packages.
var driverRules = []rule{
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
		who: "only the controller has driver/config",
		binds: func(p pkg) bool {
			return within(p.path(), "driver") && !within(p.path(), "driver/config", "driver/controller")
		},
		not:    anyOf("driver/config"),
		linked: true, tests: true,
		reason: "nodes and all other packages get values, so that a key of the configuration has one reader",
	},
	{
		who:    "driver/config knows the values that it configures",
		binds:  is("driver/config"),
		not:    driverPackagesBut("driver/config", "driver/export", "driver/hostauth", "driver/placement", "driver/request", "driver/volume"),
		reason: "it decodes files; the controller makes targets and connections from the values",
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
		who:    "kubelet knows no other package",
		binds:  in("driver/kubelet"),
		not:    func(from, path string) bool { return within(path, roots...) && path != from },
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
		who:    "coalesce imports the standard library",
		binds:  in("driver/coalesce"),
		not:    func(_, path string) bool { return !standard(path) },
		reason: "volume and export decide which reads mean the same",
	},
	{
		who:    "outage imports the standard library",
		binds:  in("driver/outage"),
		not:    func(_, path string) bool { return !standard(path) },
		reason: "it counts what others call a failure; package driver decides which errors are one",
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
		not:    driverPackagesBut("driver/luks", "driver/hostauth", "driver/operation"),
		linked: true,
		reason: "it gets a block device and makes another one of it; what is on a device is read by its Prober",
	},
	{
		who:    "monitor knows only what connect and mount tell",
		binds:  is("driver/monitor"),
		not:    driverPackagesBut("driver/monitor", "driver/connect", "driver/mount", "driver/operation", "driver/metrics", "driver/inventory"),
		reason: "it watches what the node service has staged, and must not stage, mount or record anything by itself",
	},
	{
		who:    "replica imports the standard library",
		binds:  is("driver/replica"),
		not:    func(_, path string) bool { return !standard(path) },
		linked: true,
		reason: "it decides on values alone, so that a model can explore every state with the same functions",
	},
	{
		who:    "witness knows Kubernetes and the decisions",
		binds:  is("driver/witness"),
		not:    driverPackagesBut("driver/witness", "driver/replica", "driver/kubernetes"),
		linked: true,
		reason: "controller and node store the same object with it; what the object means for a mirror or a target is decided elsewhere",
	},
	{
		who:    "placement makes no calls",
		binds:  in("driver/placement"),
		not:    func(_, path string) bool { return !standard(path) && !within(path, "driver/placement", "driver/class") },
		linked: true,
		reason: "it sorts the responses of the targets; without the client, it makes no calls and can be tested with values",
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
		reason: "it judges what volume and export tell, and repairs by their methods, which are safe to repeat; it opens no connection by itself",
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
		not:    driverPackagesBut("driver/kubectl", "driver/inventory", "driver/hostname", "driver/request", "driver/mkfs"),
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
		who:    "only tests use the driver's fixtures",
		binds:  func(p pkg) bool { return !within(p.path(), "driver/drivertest", "test") },
		not:    anyOf("driver/drivertest"),
		linked: true,
		reason: "callers that fail or interrupt calls do not belong into a program that manages volumes",
	},
	{
		who:    "the driver's fixtures know no package that is tested with them, except export and what it needs",
		binds:  is("driver/drivertest"),
		not:    driverPackagesBut("driver/drivertest", "driver/export", "driver/readback", "driver/coalesce", "driver/hostauth"),
		linked: true,
		reason: "internal tests of a package import the fixtures, so the fixtures cannot import the package",
	},
}
