package structure

// stages lists the proxy's stages in order, followed by the packages that restore a restarted
// target, and the package that freezes volumes.
var stages = []string{"proxy/authn", "proxy/policy", "proxy/tenancy", "proxy/target", "proxy/persist", "proxy/keys", "proxy/quiesce"}

var proxyRules = []rule{
	{
		who:    "proxy/tenancy/plan imports only the schema",
		binds:  in("proxy/tenancy/plan"),
		not:    func(from, path string) bool { return within(path, "proxy", "driver", "cmd") && path != from },
		linked: true,
		reason: "it derives from the schema which methods tenants may call, so it must be readable and testable without tenants, calls and a target",
	},
	{
		who:    "proxy/directory imports no other package",
		binds:  in("proxy/directory"),
		not:    func(from, path string) bool { return within(path, roots...) && path != from },
		linked: true,
		reason: "as root, it reads and writes files in a directory that another user could manipulate, so its code must be reviewable alone, whatever the files contain",
	},
	{
		who:    "the stages of the proxy do not import each other",
		binds:  in(stages...),
		not:    otherStages,
		linked: true,
		reason: "one function in package proxy/gate shows their order; a stage that calls another hides a decision from readers of that function",
	},
	{
		who: "only proxy/service and cmd import package proxy",
		binds: func(p pkg) bool {
			return within(p.path(), "proxy") && p.path() != "proxy" && !within(p.path(), "proxy/service")
		},
		not:    func(_, path string) bool { return path == "proxy" || within(path, "proxy/service") },
		linked: true,
		reason: "imports go from cmd to service, proxy, and then configuration and stages; a package that imported the server could be neither read nor tested without it",
	},
	{
		who:    "proxy/decide imports only the schema and policy",
		binds:  in("proxy/decide"),
		not:    proxyPackagesBut("proxy/decide", "proxy/policy"),
		linked: true,
		reason: "a dry run uses it to make the gate's decisions without a target or secrets",
	},
	{
		who:    "proxy/execute does not depend on why a call is allowed or how it arrived",
		binds:  in("proxy/execute"),
		not:    anyOf("proxy/gate", "proxy/decide", "proxy/policy", "proxy/authn", "proxy/web", "proxy/stream", "proxy/console", "proxy/observe"),
		reason: "every decision is made before it is called; a decision in this package would apply to some endpoints or methods only",
	},
	{
		who:    "proxy/gate does not import the endpoints",
		binds:  in("proxy/gate"),
		not:    anyOf("proxy/web", "proxy/stream", "proxy/console", "proxy/observe", "github.com/gorilla/mux"),
		linked: true,
		reason: "its decisions apply to every endpoint; a stage that imported an endpoint could make an exception for it",
	},
	{
		who:    "the endpoints do not import each other, and do not depend on what a call does",
		binds:  in("proxy/web", "proxy/stream"),
		not:    anyOf("proxy/console", "proxy/observe", "proxy/policy", "proxy/quiesce", "proxy/persist", "proxy/keys"),
		reason: "an endpoint only passes requests to the gate and responses back; the table in package proxy contains what differs between methods",
	},
	{
		who:    "package proxy imports neither its service nor packages that only commands use",
		binds:  is("proxy"),
		not:    anyOf("proxy/service", "lvstore/check", "proxy/grant"),
		linked: true,
		reason: "it handles requests; the packages above it decide how a process starts, and what commands do without a server",
	},
	{
		who:    "proxy/config neither imports the server nor creates stages",
		binds:  in("proxy/config"),
		not:    proxyPackagesBut("proxy/config", "proxy/authn", "proxy/policy", "proxy/tenancy"),
		linked: true,
		reason: "it decodes a file into values of authn, policy and tenancy; its callers create the stages and the server from these values",
	},
	{
		who:    "proxy/cert and proxy/clientconn import no other package",
		binds:  in("proxy/cert", "proxy/clientconn"),
		not:    func(from, path string) bool { return within(path, roots...) && path != from },
		linked: true,
		reason: "they handle connections before authentication; their only inputs are paths and numbers, so they can be reviewed and tested alone",
	},
	{
		who:    "proxy/localsocket imports no other package",
		binds:  in("proxy/localsocket"),
		not:    func(from, path string) bool { return within(path, roots...) && path != from },
		linked: true,
		reason: "it asks the kernel which user is at the other end of a socket; its only inputs are a path and a connection, so it can be reviewed alone",
	},
	{
		who:    "proxy/session imports no other package",
		binds:  in("proxy/session"),
		not:    func(from, path string) bool { return within(path, roots...) && path != from },
		linked: true,
		reason: "the code for session ids must be reviewable alone; the stages decide who a user is and what the user may do",
	},
	{
		who:    "proxy/dryrun imports only the configuration and the stages that need no target",
		binds:  in("proxy/dryrun"),
		not:    proxyPackagesBut("proxy/dryrun", "proxy/decide", "proxy/config", "proxy/authn", "proxy/policy", "proxy/tenancy"),
		linked: true,
		reason: "an administrator must be able to test a changed role on any machine, without a server, a target or secrets",
	},
	{
		who:    "proxy/auditlog imports only the schema and the roles that it writes",
		binds:  in("proxy/auditlog"),
		not:    proxyPackagesBut("proxy/auditlog", "proxy/policy"),
		linked: true,
		reason: "its callers pass the decision; its reader handles logs from any host, without a server or a configuration",
	},
}
