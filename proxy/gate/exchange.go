package gate

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// An Exchange is one request and its response, whichever endpoint received it: an HTTP request, or
// a message on a stream. It contains the state that the calls in a batch share. Most requests
// contain one call.
type Exchange struct {
	ID      string // X-Request-Id
	Client  Trace
	Arrived time.Time
	Source  auditlog.Source
	// NoSource, if set, is the reason why Source is a load balancer's address. The gate refuses
	// such a request.
	NoSource error
	Sender   Sender
	// Endpoint is the endpoint's own representation of the request, for methods that only this
	// endpoint serves.
	Endpoint any
	// Page means that the response is a page, made from one call's value, instead of JSON-RPC.
	Page bool
	// LikeSPDK means that requests without an id get error responses, as from SPDK.
	LikeSPDK bool

	Batch bool
	Calls []*Call

	entered     bool // inFlight counts it
	resultBytes int  // of the results of its calls so far
	reserved    int  // bytes of the user's memory budget, until the response is sent
}

// A NoClientError means that a load balancer did not report the client's address.
type NoClientError struct{ Balancer netip.Addr }

func (e *NoClientError) Error() string {
	return fmt.Sprintf("the load balancer at %s did not send the client's address in X-Forwarded-For", e.Balancer)
}

// A Trace is how a client identifies its request, so that its log and the proxy's can be
// correlated. The client chooses it, so unlike the proxy's own id, it need not be unique.
type Trace struct {
	RequestID string // X-Request-Id
	TraceID   string // of traceparent
}

// A Sender is the user who sent a request.
type Sender struct {
	User            string // the name in the credentials, if such a user exists, authenticated or not
	Unauthenticated bool
	Auth            string // the kind of credential
	Credential      string // identifies one of the user's credentials without any secret

	Challenges []string // WWW-Authenticate headers of a refusal
}

// NewExchange begins an exchange.
func NewExchange(source auditlog.Source) *Exchange {
	return &Exchange{ID: NewID(), Arrived: time.Now(), Source: source}
}

// NewID returns an exchange's id for the log. It need not be unpredictable.
func NewID() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	return hex.EncodeToString(b[:])
}

// NoteSender records the sender of a request, and the authentication schemes that a refusal lists.
func (x *Exchange) NoteSender(by *authn.Authenticator, who authn.Identity, err error) {
	x.Sender = Sender{User: who.User, Unauthenticated: err != nil, Auth: string(who.Method), Credential: who.Credential}
	// Basic comes first: clients written for rpc_http_proxy.py look for it, and some look only at
	// the first header.
	x.Sender.Challenges = []string{`Basic realm="spdk-proxy", charset="UTF-8"`}
	if by.TakesBearer() {
		x.Sender.Challenges = append(x.Sender.Challenges, `Bearer realm="spdk-proxy"`)
	}
}

// NoteCalls records a request's calls. If the whole request is refused with err, that counts as one
// call.
func (x *Exchange) NoteCalls(elements []jsonrpc.Element, batch bool, err error) {
	if err != nil {
		elements, batch = []jsonrpc.Element{{Err: err}}, false
	}
	x.Batch = batch
	for _, e := range elements {
		x.Calls = append(x.Calls, newCall(x, e))
	}
}

// NoteCall records the only call of a request, which the endpoint chose. If the request is refused
// with err, so is the call.
func (x *Exchange) NoteCall(method string, err error) *Call {
	c := newCall(x, jsonrpc.Element{Request: &jsonrpc.Request{Method: method}, Err: err})
	c.asked.notification = false
	x.Calls = []*Call{c}
	return c
}
