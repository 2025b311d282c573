package proxy

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/execute"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/stream"
	"github.com/spdkgate/spdkgate/proxy/web"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// These are the names of the stages, in the order in which gate.Gate.Enter and gate.Gate.Perform
// apply them.
const (
	noAddress        = "no client address behind a load balancer"
	wrongCredentials = "wrong credentials"
	noCredentials    = "no credentials"
	unknownProcess   = "process of an unknown user"
	endedSession     = "ended session"
	otherSite        = "page of another site"
	csrf             = "no CSRF token"
	draining         = "draining"
	memoryLimit      = "memory limit"
	malformed        = "malformed request"
	callRate         = "call rate"
	unknownMethod    = "unknown method"
	byMethod         = "policy by method"
	targetDown       = "target down"
	invalidParams    = "invalid parameters"
	unsafeNewName    = "control characters in a new name"
	byParams         = "policy by parameters"
	noTenants        = "method that refuses tenants"
	hostsWrite       = "target that loads what hosts write"
	foreignObject    = "object of another tenant"
	notEnabled       = "not enabled by the configuration"
	noSlot           = "no slot of the user"
	noStream         = "too many streams"
)

// admins is the rule that allows the caller every call, unless a stage assigns another role.
const admins = "role admin: allow *"

// anyCall returns a call that the caller may make, unless a stage refuses it.
func anyCall(d *endpoint) request {
	if d.method != "" {
		return request{method: d.method}
	}
	return request{method: "bdev_get_bdevs"}
}

// callOf returns a function that makes this call at endpoints that accept calls of any method.
func callOf(method, params string) func(*endpoint) request {
	return func(d *endpoint) request {
		if d.method != "" {
			return request{method: d.method}
		}
		return request{method: method, params: params}
	}
}

// with returns a function that modifies the result of anyCall.
func with(change func(*request)) func(*endpoint) request {
	return func(d *endpoint) request {
		r := anyCall(d)
		change(&r)
		return r
	}
}

// mayOnly returns a function that restricts the caller to calls that these rules allow.
func mayOnly(allowed func(d *endpoint) []policy.Rule) func(*config.Config, *endpoint) {
	return func(c *config.Config, d *endpoint) {
		c.Roles["limited"] = config.Role{Allow: allowed(d)}
		c.Users[len(c.Users)-1].Roles = []string{"limited"}
	}
}

func stages() []*stage {
	const unauthenticated, denied, allowed, undecided = "unauthenticated", "deny", "allow", "none"
	const (
		tryAgain       = "1"
		unsafeText     = "the name \"a\\u009bb\" of a new object has invisible characters, blanks at an end, control characters or characters that change the direction of text. Nothing was executed; choose another name."
		mayNot         = "this user may not make this call: "
		refusedText    = "tenants may not call METHOD: it is about the whole target, or about objects that no tenant can own"
		hostsWriteText = "the target loads what hosts write into volumes (bdev_auto_examine), so tenants are not safe from each other. Nothing was executed. The administrator of this proxy must start the target with bdev_auto_examine set to false (docs/target.md), or accept the risk with target.accept_loading_what_hosts_write"
	)
	strange := "no user of this proxy has your uid (" + strconv.Itoa(os.Getuid()) + ") or one of your groups: ask the administrator of this proxy to add it to local in the configuration"
	return []*stage{
		{
			name: noAddress,
			config: func(c *config.Config, _ *endpoint) {
				behind(config.XForwardedFor, "127.0.0.1")(c)
			},
			request: with(func(r *request) { r.header = []string{"X-Forwarded-For", ""} }),
			want: refusal{
				status: http.StatusBadRequest, code: jsonrpc.CodeInvalidRequest, outcome: "invalid", login: "not_checked",
				message: "the load balancer at 127.0.0.1 did not send the client's address in X-Forwarded-For. Nothing was executed; configure it to add the address at the end of that header.",
				audit: map[string]any{
					"decision": unauthenticated, "user": "", "load_balancer": "127.0.0.1",
					"error": "the load balancer at 127.0.0.1 did not send the client's address in X-Forwarded-For",
				},
			},
		},
		{
			name:    wrongCredentials,
			request: with(func(r *request) { r.credentials = asNobody }),
			want: refusal{
				status: http.StatusUnauthorized, code: jsonrpc.CodeUnauthorized, outcome: "unauthenticated", login: "wrong_credentials",
				message: "authentication failed: the credentials sent do not belong to a user of this proxy: correct the name, password or token",
				audit:   map[string]any{"decision": unauthenticated, "user": "", "error": "unknown user or wrong credentials"},
			},
		},
		{
			name: unknownProcess,
			config: func(c *config.Config, _ *endpoint) {
				c.Users[len(c.Users)-1].Local = nil
			},
			request: anyCall,
			want: refusal{
				status: http.StatusUnauthorized, code: jsonrpc.CodeUnauthorized, outcome: "unauthenticated", login: "wrong_credentials",
				message: "authentication failed: " + strange,
				audit:   map[string]any{"decision": unauthenticated, "user": "", "error": strange},
			},
		},
		{
			name:    noCredentials,
			request: with(func(r *request) { r.credentials = func(*visitor) []string { return nil } }),
			want: refusal{
				status: http.StatusUnauthorized, code: jsonrpc.CodeUnauthorized, outcome: "unauthenticated", login: "no_credentials",
				message: "authentication failed: send the name and password of a user of this proxy (HTTP Basic authentication) or, if the proxy accepts them, a user's bearer token or client certificate",
				audit:   map[string]any{"decision": unauthenticated, "user": "", "error": "no credentials"},
			},
		},
		{
			name:    endedSession,
			prepare: func(v *visitor) { v.proxy.sessions.Clear() },
			request: anyCall,
			want: refusal{
				status: http.StatusUnauthorized, code: jsonrpc.CodeUnauthorized, outcome: "unauthenticated", login: "wrong_credentials",
				message: "the session has ended. Nothing was executed; sign in again.",
				audit:   map[string]any{"decision": unauthenticated, "user": "", "error": "the session has ended"},
			},
		},
		{
			name: otherSite,
			request: with(func(r *request) {
				r.header = []string{"Origin", "https://elsewhere.example", "Sec-Fetch-Site", "cross-site"}
			}),
			want: refusal{
				status: http.StatusForbidden, code: jsonrpc.CodeForbidden, outcome: "denied", denial: "origin",
				message: "a web page on another site made your browser send this call with your credentials. Nothing was executed; find out which page it was.",
				audit:   map[string]any{"decision": undecided, "error": gate.ErrCrossOrigin.Error()},
			},
		},
		{
			name:    csrf,
			request: with(func(r *request) { r.noCSRF = true }),
			want: refusal{
				status: http.StatusForbidden, code: jsonrpc.CodeForbidden, outcome: "denied", denial: "origin",
				message: "the request lacks its session's CSRF token (X-CSRF-Token). Nothing was executed; load the console again.",
				audit:   map[string]any{"decision": undecided, "error": gate.ErrCSRF.Error()},
			},
		},
		{
			name: draining,
			prepare: func(v *visitor) {
				v.proxy.gate.Drain()
				v.proxy.gate.RefuseArrivals()
			},
			request: anyCall,
			want: refusal{
				status: http.StatusServiceUnavailable, code: jsonrpc.CodeDraining, outcome: "draining", retry: tryAgain,
				message: "the proxy is stopping. Nothing was executed; retry on a new connection.",
				audit:   map[string]any{"decision": undecided, "error": "the proxy is stopping"},
			},
		},
		{
			name:    memoryLimit,
			prepare: func(v *visitor) { v.takeMemory(caller) },
			request: anyCall,
			want: refusal{
				status: http.StatusTooManyRequests, code: jsonrpc.CodeTooMany, outcome: "busy", retry: tryAgain,
				message: "memory limit for this user reached. Nothing was executed; read pending responses, or send fewer calls at once.",
				audit:   map[string]any{"decision": undecided, "error": "memory limit for this user reached"},
			},
		},
		{
			name:    malformed,
			request: with(func(r *request) { r.text = `{"id":1,"method":5}` }),
			want: refusal{
				status: http.StatusBadRequest, code: jsonrpc.CodeInvalidRequest, outcome: "invalid",
				message: "method is missing, or not a string",
				audit:   map[string]any{"decision": undecided, "error": "method is missing, or not a string (-32600)"},
			},
		},
		{
			name: callRate,
			config: func(c *config.Config, _ *endpoint) {
				c.Limits.UsersCallsPerSecond = map[string]int{caller: 1}
			},
			prepare: func(v *visitor) { v.proxy.gate.SpendRate(caller) },
			request: anyCall,
			want: refusal{
				status: http.StatusTooManyRequests, code: jsonrpc.CodeTooMany, outcome: "busy", retry: tryAgain,
				message: "this user may make 1 calls per second. Nothing was executed; send fewer calls, or retry.",
				audit:   map[string]any{"decision": undecided, "error": "this user may make 1 calls per second"},
			},
		},
		{
			name:    unknownMethod,
			request: callOf("no_such_method", ""),
			want: refusal{
				status: http.StatusBadRequest, code: jsonrpc.CodeMethodNotFound, outcome: "invalid",
				message: `unknown method "no_such_method": rpc_get_methods lists what the target has`,
				audit:   map[string]any{"decision": undecided, "error": `unknown method "no_such_method": rpc_get_methods lists what the target has`},
			},
		},
		{
			name:    byMethod,
			config:  mayOnly(func(*endpoint) []policy.Rule { return rules("spdk_get_version") }),
			request: anyCall,
			want: refusal{
				status: http.StatusForbidden, code: jsonrpc.CodeForbidden, outcome: "denied", denial: "none",
				message: "this user may not make this call: ask the administrator of this proxy for a role that allows it",
				audit:   map[string]any{"decision": denied, "rule": policy.NoRule, "error": "denied by policy"},
			},
		},
		{
			name:    targetDown,
			config:  inTeam, // GET /events queries the target only for tenants' users
			prepare: func(v *visitor) { require.NoError(v.t, v.target.Close()) },
			request: anyCall,
			want: refusal{
				status: http.StatusBadGateway, code: jsonrpc.CodeUnreachable, outcome: "unreachable", retry: tryAgain,
				message: "the SPDK target is unreachable. Nothing was executed; check that spdk_tgt runs, then retry.",
				audit:   map[string]any{"decision": allowed, "tenant": team, "hidden": 0., "rule": admins, "error": "connect to the target at SOCKET: spdk_get_version: unreachable: dial unix SOCKET: connect: no such file or directory"},
			},
		},
		{
			name:    invalidParams,
			request: callOf("bdev_get_bdevs", `{"nam":"b"}`),
			want: refusal{
				status: http.StatusBadRequest, code: jsonrpc.CodeInvalidParams, outcome: "invalid",
				message: "/nam: bdev_get_bdevs has no such parameter: did you mean name?",
				audit:   map[string]any{"decision": allowed, "rule": admins, "error": "/nam: bdev_get_bdevs has no such parameter: did you mean name?"},
			},
		},
		{
			name:    unsafeNewName,
			request: callOf("bdev_malloc_create", `{"name":"a\u009bb","num_blocks":16,"block_size":4096}`),
			want: refusal{
				status: http.StatusBadRequest, code: jsonrpc.CodeInvalidParams, outcome: "invalid",
				message: unsafeText,
				audit:   map[string]any{"decision": allowed, "rule": admins, "error": unsafeText + " (-32602)"},
			},
		},
		{
			name: byParams,
			config: mayOnly(func(d *endpoint) []policy.Rule {
				if d.method == notificationsMethod {
					return []policy.Rule{{Method: d.method, Where: map[string]policy.Test{"/max": {Maximum: zero()}}}}
				}
				return []policy.Rule{{Method: "bdev_get_bdevs", Where: map[string]policy.Test{"/name": {Glob: "a*"}}}}
			}),
			request: callOf("bdev_get_bdevs", `{"name":"b"}`),
			want: refusal{
				status: http.StatusForbidden, code: jsonrpc.CodeForbidden, outcome: "denied", denial: "none",
				message: "this user may make this call, but not with these parameters: ask the administrator of this proxy which parameters its roles allow",
				audit:   map[string]any{"decision": denied, "rule": policy.NoRuleThere, "error": "denied by policy with these parameters"},
			},
		},
		{
			name:    noTenants,
			config:  inTeam,
			request: callOf(metricsMethod, ""),
			want: refusal{
				status: http.StatusForbidden, code: jsonrpc.CodeForbidden, outcome: "denied", denial: "tenant",
				message: mayNot + refusedText,
				audit:   map[string]any{"decision": denied, "rule": "tenant " + team, "tenant": team, "hidden": 0., "error": "tenant " + team + ": " + refusedText},
			},
		},
		{
			name:    hostsWrite,
			hosts:   true,
			config:  inTeam,
			request: anyCall,
			want: refusal{
				status: http.StatusForbidden, code: jsonrpc.CodeForbidden, outcome: "denied", denial: "tenant",
				message: mayNot + hostsWriteText,
				audit:   map[string]any{"decision": denied, "rule": "tenant " + team, "tenant": team, "hidden": 0., "error": "tenant " + team + ": " + hostsWriteText},
			},
		},
		{
			name:    foreignObject,
			config:  inTeam,
			request: callOf("bdev_get_bdevs", `{"name":"b"}`),
			want: refusal{ // as if the object did not exist
				status: http.StatusOK, code: -int(syscall.ENODEV), outcome: "spdk_error", message: "No such device", reaches: true,
				audit: map[string]any{"level": "INFO", "decision": allowed, "rule": admins, "tenant": team, "hidden": 1., "error": "bdev_get_bdevs: no such object: No such device (code -19)"},
			},
		},
		{
			name:    notEnabled,
			request: callOf("spdkgate_config_list_saved", ""),
			want: refusal{
				status: http.StatusBadRequest, code: jsonrpc.CodeMethodNotFound, outcome: "invalid",
				message: "spdkgate_config_list_saved is not enabled, because the proxy's configuration has no target.save: ask the administrator of this proxy",
				audit:   map[string]any{"decision": allowed, "rule": admins, "error": "spdkgate_config_list_saved is not enabled, because the proxy's configuration has no target.save: ask the administrator of this proxy"},
			},
		},
		{
			name: noSlot,
			config: func(c *config.Config, _ *endpoint) {
				c.Limits.UserInFlight = 1
			},
			prepare: takeSlots,
			request: anyCall,
			want: refusal{
				status: http.StatusTooManyRequests, code: jsonrpc.CodeTooMany, outcome: "busy", retry: tryAgain,
				message: "too many calls of this user are running. Nothing was executed; send fewer at once, or retry.",
				audit: map[string]any{
					"decision": allowed, "rule": admins,
					"error": "1 calls of this user are running at the target, and this user already has the maximum number of waiting calls",
				},
			},
		},
		{
			name: noStream,
			prepare: func(v *visitor) {
				r := &gate.Request{Command: execute.Command{User: caller}}
				for range web.MaxStreamsPerUser {
					_, err := v.proxy.web.OpenStream(r)
					require.NoError(v.t, err)
				}
				for range stream.MaxPerUser {
					_, err := v.proxy.streams.Open(r)
					require.NoError(v.t, err)
				}
			},
			request: anyCall,
			want: refusal{
				status: http.StatusTooManyRequests, code: jsonrpc.CodeTooMany, outcome: "busy", retry: "5",
				message: "too many streams are open: close some, then retry",
				audit:   map[string]any{"decision": allowed, "rule": admins, "error": "too many streams are open"},
			},
		},
	}
}

// zero returns the integer 0, for conditions.
func zero() *policy.Integer {
	n := new(policy.Integer)
	if err := yaml.Unmarshal([]byte("0"), n); err != nil {
		panic(err)
	}
	return n
}

// takeSlots occupies all of the caller's slots and all places in the queues for these slots.
func takeSlots(v *visitor) {
	_, err := v.proxy.target.AcquireSlot(v.t.Context(), caller)
	require.NoError(v.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	const places = 4 // length of the target's queue for each slot
	var waiting sync.WaitGroup
	for range places {
		waiting.Go(func() { _, _ = v.proxy.target.AcquireSlot(ctx, caller) })
	}
	v.t.Cleanup(func() { cancel(); waiting.Wait() })
	require.Eventually(v.t, func() bool { return v.proxy.target.Load().Waiting == places }, long, long/10000)
	assert.Equal(v.t, 1, v.proxy.target.Load().InFlight)
}
