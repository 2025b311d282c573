package spdkrpc

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// maxReply is the largest reply that SPDK writes.
const maxReply = 32 << 20

// HTTPSConfig holds the address and credentials for spdk-proxy, or for rpc_http_proxy.py.
type HTTPSConfig struct {
	URL string // https://host:port/, or http:// if the network is trusted

	// Credentials: a user with a password, or a token, or neither; and optionally a client
	// certificate, with one of these or alone. Files are read when they are needed, so they may be
	// renewed at any time.
	Username string
	Password string
	Token    string
	// TokenFile holds a token, such as a projected Kubernetes ServiceAccount token.
	TokenFile string
	// CertFile and KeyFile are a client certificate and its key, in PEM form.
	CertFile string
	KeyFile  string

	// CA holds the certificate authorities to trust; nil: the system's.
	CA *x509.CertPool
	// MaxConnections limits the number of connections, and so of calls in flight. 0: 64.
	MaxConnections int
	// Timeout limits the duration of a call whose context has no deadline. 0: one minute.
	Timeout time.Duration
}

// HTTPS is a Caller through spdk-proxy. Connections are kept alive and shared.
type HTTPS struct {
	url     *url.URL
	who     credentials
	timeout time.Duration
	// Not an http.Client: it would follow redirects, and send the password and the call to another
	// server.
	transport *http.Transport
	presents  bool // a client certificate
	nextID    atomic.Uint64
	gathering gathering
}

// NewHTTPS returns a Caller for a proxy's URL. It does not connect yet.
func NewHTTPS(c HTTPSConfig) (*HTTPS, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("proxy URL: %w", errors.Unwrap(err)) // the URL itself may contain a password
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("proxy URL must look like https://host:port/, not %q", u.Redacted())
	}
	if u.User != nil {
		return nil, fmt.Errorf("proxy URL must not contain a user or password: give them as credentials")
	}
	if u.Path == "" {
		u.Path = "/"
	}
	connections := c.MaxConnections
	if connections == 0 {
		connections = 64
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = defaultTimeout
	}
	who, err := newCredentials(c, u)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		TLSClientConfig:     clientTLS(c),
		MaxConnsPerHost:     connections,
		MaxIdleConnsPerHost: connections,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
	return &HTTPS{url: u, timeout: timeout, transport: transport, presents: c.CertFile != "", who: who}, nil
}

// Close closes idle connections.
func (h *HTTPS) Close() error {
	h.transport.CloseIdleConnections()
	return nil
}

// noteStatus closes idle connections after a refusal, because the client certificate that they were
// made with may have expired: the next connection uses the present one. Without a certificate, they
// stay: net/http can then fail another request that is just being sent.
func (h *HTTPS) noteStatus(status int) {
	if status == http.StatusUnauthorized && h.presents {
		h.transport.CloseIdleConnections()
	}
}

// requestText writes a request.
func requestText(id uint64, method string, params any) (text []byte, err error) {
	encoded, ready := params.(json.RawMessage)
	if params != nil && (!ready || !json.Valid(encoded)) {
		if encoded, err = jsonrpc.Marshal(params); err != nil {
			return nil, err
		}
	}
	text = make([]byte, 0, len(encoded)+len(method)+64)
	text = append(strconv.AppendUint(append(text, `{"jsonrpc":"2.0","id":`...), id, 10), `,"method":`...)
	if text, err = jsontext.AppendQuote(text, method); err != nil {
		return nil, err
	}
	if len(encoded) > 0 && string(encoded) != "null" {
		text = append(append(text, `,"params":`...), encoded...)
	}
	return append(text, '}'), nil
}

type wireReply struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *jsonrpc.Error  `json:"error"`
}

// Call makes one call.
func (h *HTTPS) Call(ctx context.Context, method string, params, result any) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.timeout)
		defer cancel()
	}
	id := h.nextID.Add(1)
	body, err := requestText(id, method, params)
	if err != nil {
		return &Error{Method: method, Kind: InvalidParams, Err: err}
	}
	if h.gathering.accepts(body) {
		return h.callTogether(ctx, method, id, body, result)
	}
	return h.callAlone(ctx, method, id, body, result)
}

// callAlone sends a call in a request of its own.
func (h *HTTPS) callAlone(ctx context.Context, method string, id uint64, body []byte, result any) error {
	// Until a byte of the request is written, nothing can have been executed.
	// net/http itself repeats a POST only where the proxy closed an idle
	// connection and so cannot have read it.
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { sent.Store(false) },
		WroteHeaders: func() { sent.Store(true) },
	})
	header, err := h.who.header()
	if err != nil {
		return &Error{Method: method, Kind: Unreachable, Err: err}
	}
	newBody := func() io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }
	resp, err := h.transport.RoundTrip(h.request(ctx, header, newBody, len(body)))
	if err != nil {
		return &Error{Method: method, Kind: lost(&sent), Err: err}
	}
	h.gathering.learn(resp)
	defer h.noteStatus(resp.StatusCode)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	switch {
	case err != nil:
		return &Error{Method: method, Kind: OutcomeUnknown, Err: fmt.Errorf("read the reply: %w", err)}
	case len(text) > maxReply:
		return &Error{Method: method, Kind: OutcomeUnknown, Message: fmt.Sprintf("the reply is longer than %d MiB", maxReply>>20)}
	}
	return h.answer(method, id, resp.StatusCode, text, result)
}

// request is one POST; net/http asks for its body again to repeat it.
func (h *HTTPS) request(ctx context.Context, header http.Header, newBody func() io.ReadCloser, length int) *http.Request {
	return (&http.Request{
		Method: http.MethodPost, URL: h.url, Host: h.url.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: newBody(), GetBody: func() (io.ReadCloser, error) { return newBody(), nil }, ContentLength: int64(length),
	}).WithContext(ctx)
}

// answer reads a reply of the proxy.
func (h *HTTPS) answer(method string, id uint64, status int, text []byte, result any) error {
	if parts, err := partsOf(text); err == nil {
		return replied(method, id, status, parts, result)
	}
	// spdk-proxy and SPDK write replies as above; other programs may add members that are null.
	var reply wireReply
	if err := json.Unmarshal(text, &reply); err != nil || reply.Error == nil && status != http.StatusOK {
		return refusedWith(method, status)
	}
	if reply.Error != nil {
		return answered(method, reply.Error.Code, reply.Error.Message)
	}
	return replied(method, id, status, replyParts{id: reply.ID, result: reply.Result}, result)
}

// replied decodes a reply, of which each part is decoded once.
func replied(method string, id uint64, status int, parts replyParts, result any) error {
	if parts.failure != nil {
		var e jsonrpc.Error
		if err := json.Unmarshal(parts.failure, &e); err != nil {
			return refusedWith(method, status)
		}
		return answered(method, e.Code, e.Message)
	}
	if status != http.StatusOK {
		return refusedWith(method, status)
	}
	if string(parts.id) != strconv.FormatUint(id, 10) {
		return &Error{Method: method, Kind: OutcomeUnknown, Message: "the reply has the id of another call"}
	}
	return decodeResult(method, json.RawMessage(parts.result), result)
}

// refusedWith is the error for an answer without a JSON-RPC error.
func refusedWith(method string, status int) error {
	kind, known := statusKinds[status]
	if !known {
		kind = OutcomeUnknown
	}
	// Codes that spdk-proxy sends with these statuses.
	code := map[int]int{http.StatusUnauthorized: jsonrpc.CodeUnauthorized, http.StatusTooManyRequests: jsonrpc.CodeTooMany}[status]
	return &Error{Method: method, Kind: kind, Code: code, Message: fmt.Sprintf("HTTP %d %s", status, http.StatusText(status))}
}

func lost(sent *atomic.Bool) Kind {
	if sent.Load() {
		return OutcomeUnknown
	}
	return Unreachable
}
