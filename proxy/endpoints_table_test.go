package proxy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/console"
	"github.com/spdkgate/spdkgate/proxy/stream"
)

// dryRunEndpoint is the prefix of the names of dry-run endpoints.
const dryRunEndpoint = "dry run"

// opens is the reason why some stages do not apply to messages on a stream.
const opens = "the stage refuses the request that opens the stream"

// Each of these reasons exempts several endpoints from a stage.
var (
	asksTheKernel = reasons{
		wrongCredentials: "the kernel names the process's user; see " + unknownProcess,
		noAddress:        "no load balancer connects to it",
		noCredentials:    "the kernel always names the process's user",
		endedSession:     "it has no sessions",
		otherSite:        "no browser can connect to it",
		csrf:             "no browser can connect to it",
	}
	onTheNetwork   = reasons{unknownProcess: "no kernel names the sender"}
	hasCredentials = reasons{
		endedSession: "the request has credentials of its own",
		csrf:         "the request has credentials of its own, which another site's page does not know",
	}
	hasStream = reasons{
		noAddress: opens, noCredentials: opens, otherSite: opens, noStream: opens, unknownProcess: opens,
		wrongCredentials: "the request that opened the stream had right ones; see TestRevokedUsersLoseTheirStreams",
		endedSession:     "it has no sessions",
		csrf:             "it has no sessions",
	}
	hasSession = reasons{
		wrongCredentials: "the session stands for them; see " + endedSession,
		noCredentials:    "without the session's cookie, it is the endpoint without a session",
	}
	onlyReads = reasons{
		csrf: "the request changes nothing, and a page of another site cannot read the response",
	}
	oneMethod = reasons{
		malformed:     "the endpoint makes the call",
		unknownMethod: "the endpoint chooses the method",
		invalidParams: "the endpoint chooses the parameters",
		unsafeNewName: "the call names no new object",
		foreignObject: "the call names no object",
		notEnabled:    "the method is always enabled",
	}
	noParams  = reasons{byParams: "the method has no parameters"}
	everybody = reasons{
		byMethod: "every authenticated user may call it",
		byParams: "every authenticated user may call it",
	}
	noTarget  = reasons{targetDown: "it needs no target, and is needed most while the target is down"}
	noObjects = reasons{
		noTenants:  "its result has only what the user may know",
		hostsWrite: "its result has no objects of the target",
	}
	noEvents    = reasons{noStream: "the response is not a stream"}
	takesNoSlot = reasons{noSlot: "it is no work for the target, and a stream would keep the slot"}
)

func endpoints() []*endpoint {
	list := []*endpoint{
		{name: "local socket", local: true, open: (*visitor).connect, send: sendLocally(request.call), exempt: because(asksTheKernel, noEvents)},
		{name: "local socket, batch", local: true, open: (*visitor).connect, send: sendLocally(batchOfOne), exempt: because(asksTheKernel, noEvents)},
		{
			name: "POST /console/session", method: console.SignInMethod, ruleless: true, send: sendSignIn,
			exempt: because(onTheNetwork, oneMethod, everybody, noTarget, noObjects, noEvents, takesNoSlot, reasons{
				noCredentials: "an empty body asks for the connection's client certificate",
				endedSession:  "the request begins a session",
				csrf:          "the request begins a session",
				otherSite:     "the sender is not authenticated yet; see TestSignInWithWrongCredentialsIsRefused",
			}),
		},
		{
			name: "GET /console/session with a session", method: console.SessionMethod, ruleless: true,
			open: (*visitor).signIn, send: sendHTTP("GET", "/console/session", nil),
			exempt: because(onTheNetwork, oneMethod, everybody, noTarget, noObjects, noEvents, takesNoSlot, hasSession, onlyReads, reasons{
				endedSession: "the response lists the ways to sign in",
			}),
		},
		{
			name: "GET /stream", method: stream.Method, ruleless: true, send: sendUpgrade,
			exempt: because(onTheNetwork, oneMethod, everybody, noTarget, noObjects, takesNoSlot, hasCredentials),
		},
		{name: "message of a stream", open: (*visitor).openStream, send: sendMessage(request.call), exempt: hasStream},
		{name: "message of a stream, batch", open: (*visitor).openStream, send: sendMessage(batchOfOne), exempt: hasStream},
		{
			name: dryRunEndpoint, send: sendDryRun,
			exempt: reasons{
				noAddress: "it has no connection", wrongCredentials: "it names the user", unknownProcess: "it names the user", noCredentials: "it names the user", endedSession: "it has no sessions",
				otherSite: "it has no connection", csrf: "it has no connection", draining: "it needs no proxy", memoryLimit: "it needs no proxy",
				malformed: "it has no text", callRate: "it makes no call", targetDown: "it has no target", hostsWrite: "it has no target",
				foreignObject: "it cannot know whose objects are", notEnabled: "it decides about roles and tenants only",
				noSlot: "it makes no call", noStream: "it makes no call",
			},
		},
	}
	page := because(oneMethod, noEvents)
	for _, h := range []struct {
		verb, path, method string
		name               string
		text               func(request) string
		exempt             reasons
	}{
		{verb: "POST", path: "/", text: request.call, exempt: noEvents},
		{verb: "POST", path: "/", name: ", batch", text: batchOfOne, exempt: noEvents},
		{verb: "GET", path: "/openrpc.json", method: "rpc.discover", exempt: because(page, everybody, noObjects)},
		{verb: "GET", path: "/metrics", method: metricsMethod, exempt: because(page, noParams, noTarget, reasons{hostsWrite: "no user of a tenant may call it"})},
		{verb: "GET", path: "/metrics/target", method: targetMetricsMethod, exempt: because(page, noParams, noTarget, reasons{hostsWrite: "no user of a tenant may call it"})},
		{verb: "GET", path: "/events", method: notificationsMethod, exempt: because(oneMethod, takesNoSlot, reasons{noTenants: "users of a tenant get its own events"})},
		{verb: "GET", path: "/console/access", method: console.AccessMethod, exempt: because(page, everybody, noTarget, noObjects)},
		{verb: "POST", path: "/console/explain", method: console.ExplainMethod, text: explainText, exempt: because(page, everybody, noTarget, noObjects)},
		{verb: "GET", path: "/console/audit", method: console.AuditMethod, exempt: because(oneMethod, noParams, noTarget, noObjects, takesNoSlot)},
		{verb: "DELETE", path: "/console/session", method: console.SignOutMethod, exempt: because(page, everybody, noTarget, noObjects, takesNoSlot)},
	} {
		own, session := because(h.exempt, onTheNetwork, hasCredentials), because(h.exempt, onTheNetwork, hasSession)
		if h.verb == "GET" {
			session = because(session, onlyReads)
		}
		_, ruleless := h.exempt[byMethod]
		ruleless = ruleless || h.method == console.AuditMethod
		name := h.verb + " " + h.path + h.name
		list = append(list,
			&endpoint{name: name, method: h.method, ruleless: ruleless, send: sendHTTP(h.verb, h.path, h.text), exempt: own},
			&endpoint{name: name + " with a session", method: h.method, ruleless: ruleless, open: (*visitor).signIn, send: sendHTTP(h.verb, h.path, h.text), exempt: session})
	}
	return list
}

func TestEveryPageIsListedAsAnEndpoint(t *testing.T) {
	list := endpoints()
	for _, own := range newBench(t, "v26.05").proxy.ownMethods() {
		if own.Endpoint != "" {
			assert.True(t, slices.ContainsFunc(list, func(d *endpoint) bool { return d.method == own.Name && strings.HasPrefix(d.name, own.Endpoint) }),
				"%s (%s) is not an endpoint: add a row to endpoints()", own.Endpoint, own.Name)
		}
	}
}

func TestDocumentedReasonsNameExistingStages(t *testing.T) {
	names := map[string]bool{}
	for _, s := range stages() {
		require.False(t, names[s.name], s.name)
		names[s.name] = true
	}
	for _, d := range endpoints() {
		for name := range d.exempt {
			assert.True(t, names[name], "%s: %s", d.name, name)
		}
	}
}
