package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"
)

type params map[string]any

// A client makes calls as one user from one address, and checks that each response belongs to its
// request.
type client struct {
	testbed *testbed
	user    string
	over    transport
	slow    bool // it reads slowly, so its latencies are meaningless
}

// A transport sends a request and reads the response. It checks that the response has the given id.
type transport interface {
	exchange(body []byte, id string, repeatable bool) reply
	closeIdle()
}

// newClient returns a client that uses POST.
func newClient(w *testbed, user, from string) *client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &client{testbed: w, user: user, over: &posts{w, user, &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext:     dialer.DialContext,
		TLSClientConfig: &tls.Config{RootCAs: w.ca}, MaxIdleConnsPerHost: 512, IdleConnTimeout: 2 * time.Second,
	}}}}
}

// A reply is the outcome of a call.
type reply struct {
	method  string
	status  int
	result  any
	code    int // of the error; 0: none
	message string
	// targetUp means that the target was up during the entire call, so a failure is a violation.
	targetUp bool
	err      error // why there is no response
}

func (r reply) ok() bool { return r.status == http.StatusOK && r.code == 0 && r.err == nil }

// lost reports whether the call failed because the target was down. The proxy responds to a
// deletion with 429 if the target was killed while the proxy was querying which hosts were using
// the volume.
func (r reply) lost() bool {
	return !r.targetUp && (r.status == http.StatusBadGateway || r.status == http.StatusGatewayTimeout || r.status == http.StatusTooManyRequests)
}

// notExecuted reports whether the response means that the call was not executed.
func (r reply) notExecuted() bool {
	return r.status == http.StatusBadGateway || r.status == http.StatusTooManyRequests
}

func (r reply) String() string {
	return fmt.Sprintf("status %d, code %d, %q, result %.300v, target up %v, %v", r.status, r.code, r.message, r.result, r.targetUp, r.err)
}

func (c *client) call(method string, p params) reply {
	id := fmt.Sprintf("%q", fmt.Sprintf("%s/%016x", c.user, rand.Uint64()))
	if rand.N(2) == 0 {
		id = fmt.Sprint(rand.Uint64())
	}
	request := map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "method": method}
	if p != nil {
		request["params"] = p
	}
	body, err := json.Marshal(request)
	if err != nil {
		panic(err)
	}
	era, began := c.testbed.era.Load(), time.Now()
	r := c.over.exchange(body, id, strings.Contains(method, "_get_"))
	r.method = method
	r.targetUp = c.testbed.targetWasUp(era, began.UnixNano())
	c.testbed.book.tally(c.user, r, time.Since(began), c.slow)
	return r
}

// posts makes each call with a POST request.
type posts struct {
	testbed *testbed
	user    string
	http    *http.Client
}

func (p *posts) closeIdle() { p.http.CloseIdleConnections() }

// exchange also checks that the request has been logged with this user. A repeatable request is
// sent again if the proxy closes an idle connection at that moment.
func (p *posts) exchange(body []byte, id string, repeatable bool) (r reply) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "https://"+p.testbed.address+"/", bytes.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	req.SetBasicAuth(p.user, passwordOf(p.user))
	if repeatable {
		req.Header["Idempotency-Key"] = nil // tells net/http that it may repeat the request; the header is not sent
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{status: resp.StatusCode, err: err}
	}
	answer, err := readAnswer(text)
	if err != nil {
		p.testbed.book.wrong("%s: %v", p.user, err)
		return reply{status: resp.StatusCode}
	}
	if string(answer.ID) != id {
		p.testbed.book.wrong("%s: received the response to id %s for the request %s", p.user, answer.ID, id)
	}
	if owner, logged := p.testbed.book.logged(resp.Header.Get("X-Request-Id")); !logged || owner != p.user {
		p.testbed.book.wrong("%s: the log names the user %q for its request %s", p.user, owner, resp.Header.Get("X-Request-Id"))
	}
	return answer.reply(resp.StatusCode)
}

// An answer is a JSON-RPC response or notification.
type answer struct {
	ID     json.RawMessage
	Method string // of a notification
	Result any
	Error  *struct {
		Code    int
		Message string
	}
}

func readAnswer(text []byte) (a answer, err error) {
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("a response is not JSON: %.300q", text)
	}
	return a, nil
}

func (a answer) reply(status int) reply {
	r := reply{status: status, result: a.Result}
	if a.Error != nil {
		r.code, r.message = a.Error.Code, a.Error.Message
	}
	return r
}

// flood makes many calls at once as one user, by POST and on one stream.
func (w *testbed) flood(ctx context.Context) {
	const atOnce = 300
	clients := w.clients(flooder, "127.0.0.3")
	tokens := make(chan struct{}, atOnce)
	for ctx.Err() == nil {
		for i := range atOnce {
			tokens <- struct{}{}
			go func() {
				defer func() { <-tokens }()
				r := clients[i%len(clients)].call("bdev_get_bdevs", nil)
				if !r.ok() && !r.lost() && r.status != http.StatusTooManyRequests {
					w.book.wrong("flooder: %s: %s", r.method, r)
				}
			}()
		}
		time.Sleep(500 * time.Millisecond)
	}
	for range atOnce {
		tokens <- struct{}{}
	}
	for _, c := range clients {
		c.over.closeIdle()
	}
}

// The users without volumes of their own.
const (
	flooder     = "flooder"
	hostileUser = "hostile" // belongs to the first tenant
)

func passwordOf(user string) string { return "of " + strings.ToUpper(user) }
