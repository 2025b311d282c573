package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// These are the values of the option -over.
const (
	overPOST   = "post"
	overStream = "stream"
	overBoth   = "both"
)

// clients returns a user's clients: one for each kind of connection selected by the -over option.
func (w *testbed) clients(user, from string) (list []*client) {
	if w.over != overStream {
		list = append(list, newClient(w, user, from))
	}
	if w.over != overPOST {
		list = append(list, &client{testbed: w, user: user, over: newStreams(w, user, from)})
	}
	return list
}

// mostStreams records the largest number of open streams.
func (w *testbed) mostStreams(n int64) {
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	w.book.mostStreams = max(w.book.mostStreams, n)
}

// streams makes a user's calls on one WebSocket, and opens another one when the first one has
// ended.
type streams struct {
	testbed *testbed
	user    string
	from    net.IP
	pause   time.Duration // before each response is read

	mu   sync.Mutex
	open *openStream // nil if none
}

// An openStream is a WebSocket and the calls that are waiting for responses on it.
type openStream struct {
	ws      *websocket.Conn
	writing sync.Mutex

	mu      sync.Mutex
	waiting map[string]chan answer // by id
	leaving bool                   // the proxy has asked for a new connection
	err     error                  // why it has ended
}

func newStreams(w *testbed, user, from string) *streams {
	return &streams{testbed: w, user: user, from: net.ParseIP(from)}
}

// openWebSocket opens a stream from an address. If there is no response, openWebSocket tries again.
func (w *testbed) openWebSocket(user, password string, from net.IP) (ws *websocket.Conn, resp *http.Response, err error) {
	dialer := websocket.Dialer{
		NetDialContext:   (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}).DialContext,
		TLSClientConfig:  &tls.Config{RootCAs: w.ca},
		HandshakeTimeout: time.Minute, Subprotocols: []string{"jsonrpc"},
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	for range connectTries {
		ws, resp, err = dialer.DialContext(context.Background(), "wss://"+w.address+"/stream", http.Header{"Authorization": {basic}})
		if err == nil || resp != nil {
			break
		}
	}
	return ws, resp, err
}

// openAllowed opens a stream for a user who is below the limit of open streams. The proxy may
// refuse the stream while it is still counting a closed one; openAllowed then tries again.
func (w *testbed) openAllowed(user string, from net.IP) (*websocket.Conn, error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		ws, resp, err := w.openWebSocket(user, passwordOf(user), from)
		switch {
		case err == nil:
			return ws, nil
		case resp == nil:
			return nil, fmt.Errorf("cannot open a stream: %w", err)
		case resp.StatusCode != http.StatusTooManyRequests || time.Now().After(end):
			text, _ := io.ReadAll(resp.Body)
			return nil, fmt.Errorf("cannot open a stream: %w: %s: %s", err, resp.Status, text)
		}
	}
}

// current returns the open stream, or opens one.
func (s *streams) current() (*openStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil && s.open.usable() {
		return s.open, nil
	}
	ws, err := s.testbed.openAllowed(s.user, s.from)
	if err != nil {
		return nil, err
	}
	s.testbed.book.count("stream opened")
	s.testbed.mostStreams(s.testbed.streams.Add(1))
	s.open = &openStream{ws: ws, waiting: map[string]chan answer{}}
	go s.read(s.open)
	return s.open, nil
}

func (o *openStream) usable() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err == nil && !o.leaving
}

// exchange makes a call on the stream. If the proxy requests a new connection, the call is made on
// a new one.
func (s *streams) exchange(body []byte, id string, _ bool) reply {
	for {
		o, err := s.current()
		if err != nil {
			return reply{err: err}
		}
		got := make(chan answer, 1)
		if !o.expect(id, got) {
			continue
		}
		o.writing.Lock()
		err = o.ws.WriteMessage(websocket.TextMessage, body)
		o.writing.Unlock()
		if err != nil {
			_ = o.ws.Close()
		}
		select {
		case a, answered := <-got:
			if !answered {
				return reply{err: o.err}
			}
			return a.reply(statusOf(a))
		case <-time.After(time.Minute):
			return reply{err: errors.New("no response on the stream within a minute")}
		}
	}
}

// expect records a call that is waiting for its response. It returns false if the stream accepts no
// more calls.
func (o *openStream) expect(id string, got chan answer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || o.leaving {
		return false
	}
	o.waiting[id] = got
	return true
}

// read passes responses to their callers until the stream ends.
func (s *streams) read(o *openStream) {
	defer s.testbed.streams.Add(-1)
	for {
		time.Sleep(s.pause)
		_, text, err := o.ws.ReadMessage()
		if err != nil {
			o.end(err)
			return
		}
		a, err := readAnswer(text)
		if err != nil {
			s.testbed.book.wrong("%s: %v", s.user, err)
			continue
		}
		if err := o.deliver(a); err != nil {
			s.testbed.book.wrong("%s: %v", s.user, err)
		}
	}
}

func (o *openStream) deliver(a answer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.Method == "spdkgate.draining" {
		o.leaving = true
		o.leaveIfUnused()
		return nil
	}
	got := o.waiting[string(a.ID)]
	if got == nil {
		return fmt.Errorf("received a response to id %s, which is not waiting for one", a.ID)
	}
	delete(o.waiting, string(a.ID))
	got <- a
	o.leaveIfUnused()
	return nil
}

// leaveIfUnused closes a stream that is being replaced, once all of its calls have ended. A failed
// write may have closed it before.
func (o *openStream) leaveIfUnused() {
	if o.leaving && len(o.waiting) == 0 {
		_ = o.ws.Close()
	}
}

func (o *openStream) end(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = fmt.Errorf("the stream has ended: %w", err)
	for _, got := range o.waiting {
		close(got)
	}
	clear(o.waiting)
}

func (s *streams) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil {
		_ = s.open.ws.Close()
		s.open = nil
	}
}

// statusOf returns the status that the response to a POST request would have.
func statusOf(a answer) int {
	if a.Error == nil {
		return http.StatusOK
	}
	switch a.Error.Code {
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound:
		return http.StatusBadRequest
	case jsonrpc.CodeUnauthorized:
		return http.StatusUnauthorized
	case jsonrpc.CodeForbidden:
		return http.StatusForbidden
	case jsonrpc.CodeInUse:
		return http.StatusConflict
	case jsonrpc.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case jsonrpc.CodeTooMany, jsonrpc.CodeTooManyLogins:
		return http.StatusTooManyRequests
	case jsonrpc.CodeNotSaved:
		return http.StatusInternalServerError
	case jsonrpc.CodeUnreachable:
		return http.StatusBadGateway
	case jsonrpc.CodeDraining:
		return http.StatusServiceUnavailable
	case jsonrpc.CodeOutcomeUnknown:
		return http.StatusGatewayTimeout
	}
	return http.StatusOK // SPDK's own error; it also uses CodeInvalidParams and CodeInternalError
}

// The crowd is a group of users who keep many streams open. Each of them belongs to a tenant.
const (
	crowdUsers   = 4
	crowdStreams = 256 // the proxy allows each user 64 of them
)

// crowdUser returns the name of a user in the crowd. Tenants work as other users, so the crowd does
// not use up the tenants' share of the target.
func crowdUser(i int) string { return fmt.Sprintf("crowd-%d", i%crowdUsers) }

func (w *testbed) tenantOfCrowd(i int) *tenant { return w.tenantsOf[i%crowdUsers%len(w.tenantsOf)] }

// crowd keeps crowdStreams streams open. Each stream makes a call now and then. One in eight
// streams makes several calls at once, and is slow to read the responses.
func (w *testbed) crowd(ctx context.Context) {
	if w.over == overPOST {
		return
	}
	var members sync.WaitGroup
	for i := range crowdStreams {
		s := newStreams(w, crowdUser(i), "127.0.0.4")
		c, calls := &client{testbed: w, user: s.user, over: s}, 1
		if i/crowdUsers%8 == 0 {
			c.slow, s.pause, calls = true, 50*time.Millisecond, 20
		}
		members.Go(func() {
			for ctx.Err() == nil {
				var together sync.WaitGroup
				for range calls {
					together.Go(func() { w.tenantOfCrowd(i).listAs(c) })
				}
				together.Wait()
				select {
				case <-ctx.Done():
				case <-time.After(time.Second + rand.N(6*time.Second)):
				}
			}
			s.closeIdle()
		})
	}
	members.Wait()
}

// listAs lists the tenant's volumes as a user who may exceed its share of calls.
func (t *tenant) listAs(c *client) {
	if r := c.call("bdev_lvol_get_lvols", nil); r.status != http.StatusTooManyRequests {
		t.expectOwn(r)
	}
}
