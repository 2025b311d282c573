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

// An Exchange is a request and its response: an HTTP request, or a message on a stream. It contains
// the state that the calls of a batch share. Most requests contain a single call.
type Exchange struct {
	ID      string // value of X-Request-Id
	Client  Trace
	Arrived time.Time
	Source  auditlog.Source
	// NoSource is the reason why Source is a load balancer's address instead of the client's, or
	// nil. If it is set, the gate refuses the request.
	NoSource error
	Sender   Sender
	// SessionEnded reports whether the request's session has ended in the meantime. It is nil if
	// there is no session.
	SessionEnded func() bool
	// Endpoint is the endpoint's own representation of the request, for methods that only this
	// endpoint serves.
	Endpoint any
	// Page means that the response is not JSON-RPC but a page created from the value of one call.
	Page bool
	// LikeSPDK means that requests without an id get error responses, as SPDK would send.
	LikeSPDK bool

	Batch bool
	Calls []*Call

	entered     bool // whether inFlight counts the exchange
	resultBytes int  // total size of the results so far
	reserved    int  // bytes of the user's memory budget that are reserved until the response is sent
}

// A NoClientError means that a load balancer did not report the client's address.
type NoClientError struct{ Balancer netip.Addr }

func (e *NoClientError) Error() string {
	return fmt.Sprintf("the load balancer at %s did not send the client's address in X-Forwarded-For", e.Balancer)
}

// A Trace contains the ids with which a client identifies its request, so that the client's log can
// be correlated with the proxy's. Unlike the proxy's own id, these ids need not be unique, because
// the client chooses them.
type Trace struct {
	RequestID string // value of X-Request-Id
	TraceID   string // from traceparent
}

// A Sender is the user who sent a request.
type Sender struct {
	// the user named in the credentials, if that user exists, whether or not authentication
	// succeeded
	User            string
	Unauthenticated bool
	Auth            string // kind of credential
	Credential      string // identifies one of the user's credentials without revealing a secret

	Challenges []string // WWW-Authenticate headers for a refusal
}

// NewExchange returns an Exchange for a new request.
func NewExchange(source auditlog.Source) *Exchange {
	return &Exchange{ID: NewID(), Arrived: time.Now(), Source: source}
}

// NewID returns an id for an exchange, for the log. The id may be predictable.
func NewID() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	return hex.EncodeToString(b[:])
}

// NoteSender records the user who sent a request. If authentication failed, it records the
// authentication schemes to list in the response.
func (x *Exchange) NoteSender(by *authn.Authenticator, who authn.Identity, err error) {
	x.Sender = Sender{User: who.User, Unauthenticated: err != nil, Auth: string(who.Method), Credential: who.Credential}
	// The Basic scheme comes first, because clients written for rpc_http_proxy.py look for it, and
	// some read only the first header.
	x.Sender.Challenges = []string{`Basic realm="spdk-proxy", charset="UTF-8"`}
	if by.TakesBearer() {
		x.Sender.Challenges = append(x.Sender.Challenges, `Bearer realm="spdk-proxy"`)
	}
}

// NoteCalls records the calls of a request. If the whole request is refused with err, NoteCalls
// records a single call.
func (x *Exchange) NoteCalls(elements []jsonrpc.Element, batch bool, err error) {
	if err != nil {
		elements, batch = []jsonrpc.Element{{Err: err}}, false
	}
	x.Batch = batch
	for _, e := range elements {
		x.Calls = append(x.Calls, newCall(x, e))
	}
}

// NoteCall records the only call of a request for which the endpoint determines the method. If the
// request is refused with err, the call is refused with the same error.
func (x *Exchange) NoteCall(method string, err error) *Call {
	c := newCall(x, jsonrpc.Element{Request: &jsonrpc.Request{Method: method}, Err: err})
	c.asked.notification = false
	x.Calls = []*Call{c}
	return c
}
