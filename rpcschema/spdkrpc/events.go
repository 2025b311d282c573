package spdkrpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Events opens spdk-proxy's event stream (GET /events), which consists of server-sent events. last
// is the id of the last event that the caller received, or "". The stream ends when ctx ends or
// when the caller closes it. The error is an *[Error].
func (h *HTTPS) Events(ctx context.Context, last string) (io.ReadCloser, error) {
	const method = "notify_get_notifications" // the user must be permitted to call this method
	header, err := h.who.header()
	if err != nil {
		return nil, &Error{Method: method, Kind: Unreachable, Err: err}
	}
	header = header.Clone()
	header.Del("Content-Type")
	header.Set("Accept", "text/event-stream")
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(streamWait, func() { cancel(errLate) })
	address := *h.url
	address.Path, address.RawPath = "/events", ""
	resp, err := h.transport.Load().RoundTrip((&http.Request{
		Method: http.MethodGet, URL: &address, Host: address.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx))
	late.Stop()
	if err != nil {
		cancel(nil)
		return nil, &Error{Method: method, Kind: Unreachable, Err: err}
	}
	if resp.StatusCode == http.StatusOK {
		return eventBody{resp.Body, cancel}, nil
	}
	defer cancel(nil)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return nil, &Error{Method: method, Kind: Unreachable, Err: err}
	}
	return nil, h.answer(method, 0, resp.StatusCode, text, nil)
}

var errLate = errors.New("the proxy did not respond in time")

// An eventBody is a stream whose Close ends the request.
type eventBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b eventBody) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}
