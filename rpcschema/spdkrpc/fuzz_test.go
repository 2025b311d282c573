package spdkrpc

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// FuzzMessage checks that the reader accepts only valid responses, and that another decoder finds
// the same parts in them.
func FuzzMessage(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":7,"result":[1,{"a":"\u00e9"}]}`, `{"id":1,"error":{"code":-19,"message":"x"}}`, `{"id":null,"error":{}}`,
		`{"method":"spdkgate.draining"}`, `{"id":"x","result":1}`, `{"id":1,"result":1,"id":2}`, `{"id":-1,"result":{}}x`, `[]`, `{"id":1e2,"result":0}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := messageOf(jsontext.NewDecoder(noInput), text)
		var reference map[string]json.RawMessage
		if err != nil || bytes.Contains(text, []byte(`\u`)) || json.Unmarshal(text, &reference) != nil {
			return // escaped names are not recognized
		}
		if m.method == "" {
			require.NotEqual(t, m.result == nil, m.failure == nil)
			require.Contains(t, reference, "id")
		}
		if m.id != 0 {
			require.Equal(t, fmt.Sprint(m.id), string(reference["id"]))
		}
		for name, part := range map[string][]byte{"result": m.result, "error": m.failure} {
			if part != nil && reference[name] != nil {
				require.JSONEq(t, string(reference[name]), string(part))
			}
		}
	})
}

// FuzzSocketFraming checks that arbitrary bytes from a target are read as responses or end the
// connection, no matter how the bytes are divided into reads.
func FuzzSocketFraming(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":true}{"id":2,"result":"x"}`), 3)
	f.Add([]byte("{\"id\":1,\"result\":[[[[\n"), 1)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		read := func(size int) (all []message) {
			framing := newSocketFraming(&served{in: bytes.NewReader(text), size: size})
			for {
				m, err := framing.read()
				if err != nil {
					return all
				}
				all = append(all, m)
			}
		}
		require.Equal(t, read(len(text)+1), read(size))
	})
}

// FuzzWebSocket checks that arbitrary bytes after the upgrade are read as messages or end the
// connection, and that the amount of data waiting to be written is limited.
func FuzzWebSocket(f *testing.F) {
	f.Add([]byte("\x81\x16{\"id\":1,\"result\":true}\x89\x00\x88\x02\x03\xe8"), 4)
	f.Add([]byte("\x01\x03{\"i\x89\x01x\x80\x12d\":1,\"result\":true}"), 1)
	f.Add([]byte("\x81\x7e\x00\x16{\"id\":1,\"result\":true}\x81\xff"), 2)
	f.Add([]byte("\xc1\x02{}\x82\x00\x81\x7f\x7f\xff\xff\xff\xff\xff\xff\xff"), 100)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		conn := &gathering{Conn: &served{upgrade: true, in: bytes.NewReader(text), size: size}}
		dialer := websocket.Dialer{NetDialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
		ws, _, err := dialer.Dial("ws://proxy/stream", nil)
		require.NoError(t, err)
		conn.gather()
		w := newWebSocket(ws, conn)
		for {
			if _, err := w.read(); err != nil {
				break
			}
		}
		require.LessOrEqual(t, conn.waiting(), maxControl+1024)
		require.NoError(t, w.close())
	})
}

// A served connection returns a string in pieces, after the upgrade if requested.
type served struct {
	net.Conn
	upgrade bool
	request bytes.Buffer
	in      io.Reader
	size    int
}

func (s *served) Write(p []byte) (int, error) { return s.request.Write(p) }

func (s *served) Read(p []byte) (int, error) {
	if s.upgrade {
		s.upgrade = false
		r, err := http.ReadRequest(bufio.NewReader(&s.request))
		if err != nil {
			return 0, err
		}
		accept := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		response := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
			base64.StdEncoding.EncodeToString(accept[:]) + "\r\n\r\n"
		return copy(p, response), nil
	}
	if s.size > 0 {
		p = p[:min(len(p), s.size)]
	}
	return s.in.Read(p)
}

func (s *served) SetDeadline(time.Time) error      { return nil }
func (s *served) SetWriteDeadline(time.Time) error { return nil }
func (s *served) Close() error                     { return nil }
