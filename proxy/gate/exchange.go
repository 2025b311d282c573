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

// An Exchange is one request and its response: an HTTP request, or a message on a stream. It
// contains the state that the calls in a batch share. Most requests contain one call.
type Exchange struct {
	ID      string // value of X-Request-Id
	Client  Trace
	Arrived time.Time
	Source  auditlog.Source
	// NoSource, if set, is the reason why Source is a load balancer's address instead of the
	// client's. The gate refuses the request.
	NoSource error
	Sender   Sender
	// SessionEnded reports whether the session to which the request belongs has ended since. It is
	// nil without a session.
	SessionEnded func() bool
	// Endpoint is the endpoint's own representation of the request, for methods that only this
	// endpoint serves.
	Endpoint any
	// Page means that the response is not JSON-RPC but a page made from the value of one call.
	Page bool
	// LikeSPDK means that requests without an id get error responses, as they do from SPDK.
	LikeSPDK bool

	Batch bool
	Calls []*Call

	entered     bool // the exchange is counted in inFlight
	resultBytes int  // total size of the results of its calls so far
	reserved    int  // bytes of the user's memory budget in use until the response is sent
}

// A NoClientError means that a load balancer did not report the client's address.
type NoClientError struct{ Balancer netip.Addr }

func (e *NoClientError) Error() string {
	return fmt.Sprintf("the load balancer at %s did not send the client's address in X-Forwarded-For", e.Balancer)
}

// A Trace contains the ids by which a client identifies its request, so that the client's log can
// be correlated with the proxy's. The client chooses these ids, so they may not be unique, unlike
// the proxy's own id.
type Trace struct {
	RequestID string // value of X-Request-Id
	TraceID   string // from traceparent
}

// A Sender is the user who sent a request.
type Sender struct {
	// the name in the credentials if such a user exists, whether or not authentication succeeded
	User            string
	Unauthenticated bool
	Auth            string // the kind of credential
	Credential      string // identifies one of the user's credentials without any secret

	Challenges []string // WWW-Authenticate headers of a refusal
}

// NewExchange returns an Exchange for a new request.
func NewExchange(source auditlog.Source) *Exchange {
	return &Exchange{ID: NewID(), Arrived: time.Now(), Source: source}
}

// NewID returns an id for an exchange, for the log. The id need not be unpredictable.
func NewID() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	return hex.EncodeToString(b[:])
}

// NoteSender records the sender of a request, and the authentication schemes that the response
// lists if the sender is refused.
func (x *Exchange) NoteSender(by *authn.Authenticator, who authn.Identity, err error) {
	x.Sender = Sender{User: who.User, Unauthenticated: err != nil, Auth: string(who.Method), Credential: who.Credential}
	// The Basic scheme comes first, because clients written for rpc_http_proxy.py look for it, and
	// some read only the first header.
	x.Sender.Challenges = []string{`Basic realm="spdk-proxy", charset="UTF-8"`}
	if by.TakesBearer() {
		x.Sender.Challenges = append(x.Sender.Challenges, `Bearer realm="spdk-proxy"`)
	}
}

// NoteCalls records a request's calls. If the whole request is refused with err, NoteCalls records
// a single call.
func (x *Exchange) NoteCalls(elements []jsonrpc.Element, batch bool, err error) {
	if err != nil {
		elements, batch = []jsonrpc.Element{{Err: err}}, false
	}
	x.Batch = batch
	for _, e := range elements {
		x.Calls = append(x.Calls, newCall(x, e))
	}
}

// NoteCall records the only call of a request, whose method is determined by the endpoint. If the
// request is refused with err, so is the call.
func (x *Exchange) NoteCall(method string, err error) *Call {
	c := newCall(x, jsonrpc.Element{Request: &jsonrpc.Request{Method: method}, Err: err})
	c.asked.notification = false
	x.Calls = []*Call{c}
	return c
}
