package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A streamClient makes many calls on one connection.
type streamClient struct {
	write func(text []byte) error
	close func() error

	mu      sync.Mutex
	nextID  int
	waiting map[int]chan []byte
	failed  error
}

func newStreamClient(write func([]byte) error, read func() ([]byte, error), end func() error) *streamClient {
	c := &streamClient{write: write, close: end, waiting: map[int]chan []byte{}}
	go func() {
		for {
			text, err := read()
			if err != nil {
				c.fail(err)
				return
			}
			c.deliver(text)
		}
	}()
	return c
}

// deliver passes a response to its caller. All servers start a response with the same members.
func (c *streamClient) deliver(text []byte) {
	_, rest, _ := strings.Cut(string(text[:min(len(text), 64)]), `"id":`)
	digits, _, _ := strings.Cut(rest, ",")
	id, err := strconv.Atoi(digits)
	if err != nil {
		c.fail(fmt.Errorf("a response without an id: %s", text))
		return
	}
	c.mu.Lock()
	answer := c.waiting[id]
	delete(c.waiting, id)
	c.mu.Unlock()
	if answer != nil {
		answer <- text
	}
}

func (c *streamClient) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	for _, answer := range c.waiting {
		close(answer)
	}
	clear(c.waiting)
}

func (c *streamClient) Call(_ context.Context, method string, params, result any) error {
	answer := make(chan []byte, 1)
	c.mu.Lock()
	if c.failed != nil {
		c.mu.Unlock()
		return c.failed
	}
	c.nextID++
	id := c.nextID
	c.waiting[id] = answer
	c.mu.Unlock()
	body, err := jsonrpc.Marshal(struct {
		JSONRPC string `json:"jsonrpc"`
		ID      int    `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{"2.0", id, method, params})
	if err != nil {
		return err
	}
	if err := c.write(body); err != nil {
		return err
	}
	text, ok := <-answer
	if !ok {
		return fmt.Errorf("%s: the stream has ended: %w", method, c.failed)
	}
	if result == nil && strings.Contains(string(text), `,"result":`) {
		return nil
	}
	var reply struct {
		Result json.RawMessage
		Error  *jsonrpc.Error
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return err
	}
	if reply.Error != nil {
		return fmt.Errorf("%s: %w", method, reply.Error)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(reply.Result, result)
}

// dialStream opens a stream to the proxy.
func dialStream(ctx context.Context, p *proxy, user string) (*streamClient, error) {
	dialer := websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: p.ca}, Subprotocols: []string{"jsonrpc"}}
	header := http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}}
	conn, _, err := dialer.DialContext(ctx, strings.Replace(p.url, "https", "wss", 1)+"stream", header)
	if err != nil {
		return nil, err
	}
	var writing sync.Mutex
	return newStreamClient(func(text []byte) error {
		writing.Lock()
		defer writing.Unlock()
		return conn.WriteMessage(websocket.TextMessage, text)
	}, func() ([]byte, error) {
		_, text, err := conn.ReadMessage()
		return text, err
	}, conn.Close), nil
}

// measureStream measures calls on one connection, and the server's CPU time for each.
func measureStream(ctx context.Context, client *streamClient, cpu func() time.Duration, inFlight int, span time.Duration) (figures, error) {
	defer func() { _ = client.close() }()
	return measureServer(ctx, client, cpu, version, inFlight, span)
}

// measureStream measures calls on a stream of the proxy.
func (p *proxy) measureStream(ctx context.Context, inFlight int, span time.Duration) (figures, error) {
	client, err := dialStream(ctx, p, user)
	if err != nil {
		return figures{}, err
	}
	return measureStream(ctx, client, p.cpu, inFlight, span)
}
