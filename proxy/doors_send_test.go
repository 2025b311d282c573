package proxy

import (
	"cmp"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/console"
	"github.com/spdkgate/spdkgate/proxy/decide"
	"github.com/spdkgate/spdkgate/proxy/dryrun"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/stream"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/proxy/web"
	"github.com/spdkgate/spdkgate/rpcschema"
)

func batchOfOne(r request) string { return "[" + r.call() + "]" }

func explainText(request) string { return `{"method":"bdev_get_bdevs"}` }

// asNobody returns credentials that belong to no user.
func asNobody(*visitor) []string {
	return []string{"Authorization", basicHeader("nobody", adminPassword)}
}

// clientAddress is the header that a load balancer adds.
var clientAddress = []string{"X-Forwarded-For", "198.51.100.1"}

// signIn begins a console session for the visitor.
func (v *visitor) signIn() {
	v.session = v.browser()
	got := v.session.do("POST", "/console/session", passwordOf(caller, adminPassword), clientAddress...)
	var began console.SessionAnswer
	require.Equal(v.t, http.StatusOK, got.StatusCode, got.body)
	require.NoError(v.t, json.Unmarshal([]byte(got.body), &began))
	v.session.csrf = began.CSRF
}

// sendHTTP returns a function that sends a request with the visitor's session or, if there is none,
// with credentials. text returns the body; if it is nil, the body is empty.
func sendHTTP(verb, path string, text func(request) string) func(*visitor, request) response {
	return func(v *visitor, r request) response {
		body := ""
		if text != nil {
			body = text(r)
		}
		var header []string
		switch {
		case v.session != nil:
			header = []string{"Cookie", sessionCookie + "=" + v.session.cookie}
			if verb != http.MethodGet && !r.noCSRF {
				header = append(header, csrfHeader, v.session.csrf)
			}
		case r.credentials != nil:
			header = r.credentials(v)
		default:
			header = []string{"Authorization", basicHeader(caller, adminPassword)}
		}
		return v.exchange(verb, path, body, append(header, r.header...))
	}
}

func sendSignIn(v *visitor, r request) response {
	body := passwordOf(caller, adminPassword)
	if r.credentials != nil {
		body = passwordOf("nobody", adminPassword)
	}
	got := v.exchange("POST", "/console/session", body, append([]string{"Content-Type", "application/json"}, r.header...))
	// translate the console's wording to that of the other endpoints
	if got.message == "the name or the password is wrong" {
		got.message = "authentication failed: the credentials sent do not belong to a user of this proxy: correct the name, password or token"
	}
	return got
}

// exchange sends an HTTP request, and omits empty headers.
func (v *visitor) exchange(verb, path, body string, header []string) response {
	r, err := http.NewRequest(verb, v.http.URL+path, strings.NewReader(body))
	require.NoError(v.t, err)
	for list := range slices.Chunk(append(clientAddress[:2:2], header...), 2) {
		if r.Header.Set(list[0], list[1]); list[1] == "" {
			r.Header.Del(list[0])
		}
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	require.NoError(v.t, err)
	defer func() { _ = resp.Body.Close() }()
	got := response{http: true, status: resp.StatusCode, retry: resp.Header.Get("Retry-After")}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), eventStreamType) {
		got.message = "a stream of events"
		return got
	}
	text, err := io.ReadAll(resp.Body)
	require.NoError(v.t, err)
	return got.read(text)
}

// read decodes the error in a response from the console or from JSON-RPC, for a single call or for
// a batch of one call. The HTTP status of a batch does not depend on the results of its calls.
func (got response) read(text []byte) response {
	var batch []localAnswer
	var one struct {
		localAnswer
		Message string
	}
	switch {
	case json.Unmarshal(text, &batch) == nil && len(batch) == 1:
		one.localAnswer, got.status = batch[0], 0
	case json.Unmarshal(text, &one) != nil:
		got.message = "not JSON: " + string(text)
		return got
	}
	if got.message = one.Message; one.Error != nil {
		got.code, got.message = one.code(), one.Error.Message
	}
	return got
}

// connect connects to the socket for local programs.
func (v *visitor) connect() {
	l, err := stream.ListenLocal(v.config.ListenUnix)
	require.NoError(v.t, err)
	programs := stream.ServeLocal(&v.proxy.gate, long, []net.Listener{l})
	v.t.Cleanup(func() { programs.StopAccepting(); programs.CloseConns() })
	v.program = (&serving{bench: v.bench}).program()
}

// sendLocally returns a function that sends a request to the socket for local programs.
func sendLocally(text func(request) string) func(*visitor, request) response {
	return func(v *visitor, r request) response {
		var answer json.RawMessage
		require.NoError(v.t, v.program.send(text(r)).dec.Decode(&answer))
		return response{}.read(answer)
	}
}

func sendUpgrade(v *visitor, r request) response {
	r.header = append([]string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}, r.header...)
	return sendHTTP(http.MethodGet, web.StreamPath, nil)(v, r)
}

// openStream opens a stream for the visitor.
func (v *visitor) openStream() {
	s := &serving{bench: v.bench, addr: v.http.Listener.Addr().String()}
	v.stream = s.stream(caller, adminPassword)
}

// sendMessage returns a function that sends a request over the stream.
func sendMessage(text func(request) string) func(*visitor, request) response {
	return func(v *visitor, r request) response {
		_, answer, err := v.stream.send(text(r)).ws.ReadMessage()
		require.NoError(v.t, err)
		return response{}.read(answer)
	}
}

// sendDryRun evaluates a request in a dry run, without a proxy.
func sendDryRun(v *visitor, r request) response {
	d, err := dryrun.New(v.config, rpcschema.Default())
	require.NoError(v.t, err)
	user, err := d.User(caller)
	require.NoError(v.t, err)
	params := map[string]any{}
	if r.params != "" {
		params = decodeObject(v.t, r.params)
	}
	c, err := d.Call(user, r.method, params, true, rpcschema.MustRelease("v26.05"))
	rule := ""
	if err == nil {
		rule, err = c.Decision.Rule, cmp.Or(c.Invalid, refusalOf(c))
		if c.Foreign {
			rule = c.Rule()
		}
	}
	if err == nil {
		return response{message: "allowed"}
	}
	answer := gate.AnswerTo(err)
	return response{status: answer.Status, code: answer.Err.Code, message: answer.Err.Message, rule: rule}
}

// refusalOf returns the error with which the proxy would refuse a call.
func refusalOf(c *dryrun.Result) error {
	switch {
	case c.Decision.Rule == policy.NoRuleThere:
		return decide.ErrDeniedParams
	case c.Decision.Refused():
		return decide.ErrDenied
	case c.Foreign:
		return &tenancy.Refusal{Tenant: c.User.Tenant, Reason: "tenants may not call " + c.Method.Name + strings.TrimPrefix(c.Standing, "refused")}
	}
	return nil
}
