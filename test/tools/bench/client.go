package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A leanClient uses little CPU time, because it shares the processors with the proxy. The client
// opens its connections in advance, sends each request with a single write, and decodes a response
// only if the caller wants the result.
type leanClient struct {
	conns  chan *leanConn // idle
	header string
}

type leanConn struct {
	*tls.Conn
	in *bufio.Reader
}

func dialLean(ctx context.Context, address, user, password string, ca *x509.CertPool, connections int) (*leanClient, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	c := &leanClient{conns: make(chan *leanConn, connections)}
	c.header = fmt.Sprintf("POST / HTTP/1.1\r\nHost: %s\r\nAuthorization: Basic %s\r\nContent-Length: ", u.Host, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: ca, ServerName: u.Hostname()}}
	for range connections {
		conn, err := dialer.DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.conns <- &leanConn{conn.(*tls.Conn), bufio.NewReader(conn)}
	}
	return c, nil
}

func (c *leanClient) Close() (err error) {
	for {
		select {
		case conn := <-c.conns:
			err = errors.Join(err, conn.Close())
		default:
			return err
		}
	}
}

func (c *leanClient) Call(_ context.Context, method string, params, result any) error {
	body, err := jsonrpc.Marshal(struct {
		JSONRPC string `json:"jsonrpc"`
		ID      int    `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{"2.0", 1, method, params})
	if err != nil {
		return err
	}
	conn := <-c.conns
	defer func() { c.conns <- conn }()
	if _, err := conn.Write(append([]byte(c.header+strconv.Itoa(len(body))+"\r\n\r\n"), body...)); err != nil {
		return err
	}
	text, err := conn.answer()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	var reply struct {
		Result json.RawMessage
		Error  *jsonrpc.Error
	}
	if result == nil && strings.Contains(string(text), `,"result":`) {
		return nil
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

// answer reads a response and returns its body. The response must have a Content-Length.
func (c *leanConn) answer() ([]byte, error) {
	length := -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if len(line) <= len("\r\n") {
			break
		}
		if name, value, ok := strings.Cut(string(line), ":"); ok && strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return nil, err
			}
		}
	}
	if length < 0 {
		return nil, errors.New("a response has no Content-Length")
	}
	text := make([]byte, length)
	_, err := io.ReadFull(c.in, text)
	return text, err
}
