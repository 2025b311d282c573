package structure

// stages lists the proxy's stages in order, followed by the packages that restore a restarted
// target, and the package that freezes volumes.
var stages = []string{"proxy/authn", "proxy/policy", "proxy/tenancy", "proxy/target", "proxy/persist", "proxy/keys", "proxy/quiesce"}

// proxyRules are the rules for the proxy's packages.
var proxyRules = []rule{
	{
		who:    "proxy/tenancy/plan knows the schema only",
		binds:  in("proxy/tenancy/plan"),
		not:    func(from, path string) bool { return within(path, "proxy", "driver", "cmd") && path != from },
		linked: true,
		reason: "it decides from the schema which methods tenants may call, so it must be readable and testable without tenants, calls and a target",
	},
	{
		who:    "proxy/directory knows no other package",
		binds:  in("proxy/directory"),
		not:    func(from, path string) bool { return within(path, roots...) && path != from },
		linked: true,
		reason: "root reads and writes files in a directory that another user could manipulate: the code that does so must be reviewable alone, whatever the files contain",
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
		who:    "proxy/decide knows the schema and policy",
		binds:  in("proxy/decide"),
		not:    proxyPackagesBut("proxy/decide", "proxy/policy"),
		linked: true,
		reason: "a dry run decides by it without a target and without secrets, exactly as the gate does",
	},
	{
		who:    "proxy/execute does not know why a call is allowed, nor how it came",
		binds:  in("proxy/execute"),
		not:    anyOf("proxy/gate", "proxy/decide", "proxy/policy", "proxy/authn", "proxy/web", "proxy/stream", "proxy/console", "proxy/observe"),
		reason: "every decision is made before it: a decision in here would hold for some endpoints or methods only",
	},
	{
		who:    "proxy/gate does not know the endpoints",
		binds:  in("proxy/gate"),
		not:    anyOf("proxy/web", "proxy/stream", "proxy/console", "proxy/observe", "github.com/gorilla/mux"),
		linked: true,
		reason: "what it decides holds for every endpoint; a stage that knew one could make an exception for it",
	},
	{
		who:    "the endpoints do not know each other, and not what a call does",
		binds:  in("proxy/web", "proxy/stream"),
		not:    anyOf("proxy/console", "proxy/observe", "proxy/policy", "proxy/quiesce", "proxy/persist", "proxy/keys"),
		reason: "an endpoint brings requests to the gate and responses back: what differs between methods is in the table of package proxy",
	},
	{
		who:    "package proxy knows neither its service nor what only commands use",
		binds:  is("proxy"),
		not:    anyOf("proxy/service", "lvstore/check", "proxy/grant"),
		linked: true,
		reason: "it handles requests: how a process starts, and what commands do without a server, is decided in the packages above it",
	},
	{
		who:    "proxy/config makes no stage and does not know the server",
		binds:  in("proxy/config"),
		not:    proxyPackagesBut("proxy/config", "proxy/authn", "proxy/policy", "proxy/tenancy"),
		linked: true,
		reason: "it decodes a file into the values of authn, policy and tenancy; its callers make the stages and the server from these values",
	},
	{
		who:    "proxy/cert and proxy/clientconn know no other package",
		binds:  in("proxy/cert", "proxy/clientconn"),
		not:    func(from, path string) bool { return within(path, roots...) && path != from },
		linked: true,
		reason: "they handle connections before authentication: they take only paths and numbers, so they can be reviewed and tested alone",
	},
	{
		who:    "proxy/localsocket knows no other package",
		binds:  in("proxy/localsocket"),
		not:    func(from, path string) bool { return within(path, roots...) && path != from },
		linked: true,
		reason: "the kernel decides who is at the other end of a socket: the code that asks it takes a path and a connection, so it can be reviewed alone",
	},
	{
		who:    "proxy/session knows no other package",
		binds:  in("proxy/session"),
		not:    func(from, path string) bool { return within(path, roots...) && path != from },
		linked: true,
		reason: "ids of sessions must be reviewable alone: who a user is, and what a user may do, is decided by the stages",
	},
	{
		who:    "proxy/dryrun knows the configuration and the stages that need no target",
		binds:  in("proxy/dryrun"),
		not:    proxyPackagesBut("proxy/dryrun", "proxy/decide", "proxy/config", "proxy/authn", "proxy/policy", "proxy/tenancy"),
		linked: true,
		reason: "an administrator must be able to test a changed role on any machine, without a server, a target or secrets",
	},
	{
		who:    "proxy/auditlog knows the schema and the roles that it writes",
		binds:  in("proxy/auditlog"),
		not:    proxyPackagesBut("proxy/auditlog", "proxy/policy"),
		linked: true,
		reason: "its callers pass the decision; its reader works on logs of any host, without a server or a configuration",
	},
}
