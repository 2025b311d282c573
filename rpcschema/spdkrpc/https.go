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
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/sourcegraph/jsonrpc2"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// HTTPSConfig contains the address and credentials for spdk-proxy, or for rpc_http_proxy.py.
type HTTPSConfig struct {
	URL string // https://host:port/, or http:// if the network is trusted

	// The client authenticates with Username and Password, with a token, or with a client
	// certificate. The certificate can also be combined with a password or a token. Files are read
	// when they are needed, so they may be renewed at any time.
	Username string
	Password string
	Token    string
	// TokenFile is a file that contains a token, such as a projected Kubernetes ServiceAccount
	// token.
	TokenFile string
	// CertFile and KeyFile are the files of a PEM-encoded client certificate and its key.
	CertFile string
	KeyFile  string

	// CA contains the certificate authorities to trust. If it is nil, the system's authorities are
	// trusted.
	CA *x509.CertPool
	// MaxConnections limits the number of connections for POST requests, and therefore the number
	// of calls in flight that do not use the stream. 0 means 64.
	MaxConnections int
	// NoStream makes each call a POST request, even if the proxy offers streams. Use it in programs
	// that make few calls.
	NoStream bool
	// Timeout limits the duration of a call whose context has no deadline. 0 means one minute.
	Timeout time.Duration
}

// HTTPS is a Caller that calls SPDK through spdk-proxy. If the proxy offers streams, calls share
// one connection. While no stream is open, each call is a POST request on a shared keep-alive
// connection.
type HTTPS struct {
	url     *url.URL
	who     credentials
	timeout time.Duration
	// transport is used instead of an http.Client, which would follow redirects and send the
	// password and the call to another server.
	transport atomic.Pointer[http.Transport]
	presents  bool // a client certificate is configured
	nextID    atomic.Uint64
	streams   streamSource
}

// NewHTTPS returns a Caller for a proxy's URL. It does not connect yet.
func NewHTTPS(c HTTPSConfig) (*HTTPS, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		// The parser's message may contain a password from the URL.
		return nil, fmt.Errorf("proxy URL: %w", errors.Unwrap(err))
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("proxy URL must look like https://host:port/, not %q", u.Redacted())
	}
	if u.User != nil {
		return nil, fmt.Errorf("proxy URL must not contain a user or password: pass them as credentials")
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
	h := &HTTPS{url: u, timeout: timeout, presents: c.CertFile != "", who: who}
	h.transport.Store(transport)
	h.streams.dial, h.streams.draining, h.streams.closed = h.dialStream, func() { h.renew(h.transport.Load()) }, c.NoStream
	return h, nil
}

// Close closes idle connections immediately, and closes the stream when its last call has ended. It
// does not interrupt calls in flight. Later calls are POST requests.
func (h *HTTPS) Close() error {
	h.streams.close()
	h.transport.Load().CloseIdleConnections()
	return nil
}

// noteStatus closes idle connections after a refusal, because their client certificate may have
// expired. The next connection will use the current certificate. Without a client certificate,
// connections stay open, because net/http may be about to send a request on one of them, and that
// request would fail.
func (h *HTTPS) noteStatus(status int) {
	if status == http.StatusUnauthorized && h.presents {
		h.transport.Load().CloseIdleConnections()
	}
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
	if done, err := h.streams.call(ctx, method, id, body, result); done {
		return err
	}
	transport := h.transport.Load()
	err = h.post(ctx, transport, method, id, body, result)
	var answer *Error
	if errors.As(err, &answer) && answer.Code == jsonrpc.CodeDraining && ctx.Err() == nil {
		return h.post(ctx, h.renew(transport), method, id, body, result)
	}
	return err
}

// renew makes later POST requests use new connections, because the old ones lead to a proxy that is
// stopping. It does not close the old connections, because a request in the middle of being sent
// would fail. The proxy closes them, or they time out.
func (h *HTTPS) renew(old *http.Transport) *http.Transport {
	h.transport.CompareAndSwap(old, old.Clone())
	return h.transport.Load()
}

// post sends a call as a POST request.
func (h *HTTPS) post(ctx context.Context, transport *http.Transport, method string, id uint64, body []byte, result any) error {
	// Until the first byte of the request has been written, the call cannot have been executed.
	// net/http itself retries a POST only if the proxy closed an idle connection. In that case, the
	// proxy cannot have read the request.
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
	resp, err := transport.RoundTrip(h.request(ctx, header, newBody, len(body)))
	if err != nil {
		return &Error{Method: method, Kind: lost(&sent), Err: err}
	}
	h.streams.learn(resp)
	defer h.noteStatus(resp.StatusCode)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return &Error{Method: method, Kind: OutcomeUnknown, Err: fmt.Errorf("read the response: %w", err)}
	case len(text) > maxResponse:
		return &Error{Method: method, Kind: OutcomeUnknown, Message: fmt.Sprintf("the response is longer than %d MiB", maxResponse>>20)}
	}
	return h.answer(method, id, resp.StatusCode, text, result)
}

// request creates a POST request. For a retry, net/http gets the body again from newBody.
func (h *HTTPS) request(ctx context.Context, header http.Header, newBody func() io.ReadCloser, length int) *http.Request {
	return (&http.Request{
		Method: http.MethodPost, URL: h.url, Host: h.url.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: newBody(), GetBody: func() (io.ReadCloser, error) { return newBody(), nil }, ContentLength: int64(length),
	}).WithContext(ctx)
}

// answer reads a response from the proxy.
func (h *HTTPS) answer(method string, id uint64, status int, text []byte, result any) error {
	dec := decoders.Get().(*jsontext.Decoder)
	m, err := messageOf(dec, text)
	decoders.Put(dec)
	if err != nil {
		// spdk-proxy and SPDK write exactly one of result and error. Other programs may also write
		// the other one, as null.
		var response jsonrpc2.Response
		if err := json.Unmarshal(text, &response); err != nil || response.Error == nil && response.Result == nil {
			return refusedWith(method, status)
		}
		if response.Error != nil {
			return answered(method, int(response.Error.Code), response.Error.Message)
		}
		m = message{id: response.ID.Num, result: *response.Result}
	}
	e, err := m.failed()
	switch {
	case err != nil || e == nil && (m.result == nil || status != http.StatusOK):
		return refusedWith(method, status)
	case e == nil && m.id != id:
		return &Error{Method: method, Kind: OutcomeUnknown, Message: "the response has the id of another call"}
	}
	return decodeResponse(method, m, result)
}

// refusedWith returns the error for a response without a JSON-RPC error.
func refusedWith(method string, status int) error {
	kind, known := statusKinds[status]
	if !known {
		kind = OutcomeUnknown
	}
	var err error
	if !known || status == http.StatusNotFound {
		err = ErrNotProxy
	}
	// These are the codes that spdk-proxy sends with these statuses.
	code := map[int]int{http.StatusUnauthorized: jsonrpc.CodeUnauthorized, http.StatusTooManyRequests: jsonrpc.CodeTooMany}[status]
	return &Error{Method: method, Kind: kind, Code: code, Message: fmt.Sprintf("HTTP %d %s", status, http.StatusText(status)), Err: err}
}

func lost(sent *atomic.Bool) Kind {
	if sent.Load() {
		return OutcomeUnknown
	}
	return Unreachable
}
