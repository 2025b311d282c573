package main

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/websocket"
)

// hostileStream opens a stream of the hostile tenant.
func (w *testbed) hostileStream() (*websocket.Conn, error) {
	ws, _, err := w.openWebSocket(hostileUser, passwordOf(hostileUser), hostile.IP)
	return ws, err
}

// sendOnStream sends a hostile message. Some hostile clients guess the password, and some
// disconnect in the middle of the message.
func (w *testbed) sendOnStream(m message) {
	if rand.N(10) == 0 {
		w.guessForStream()
		return
	}
	ws, err := w.hostileStream()
	if err != nil {
		w.book.wrong("a hostile client cannot open a stream: %v", err)
		return
	}
	defer func() { _ = ws.Close() }()
	if rand.N(5) == 0 {
		text := frame(len(m.text), m.text)
		_, _ = io.WriteString(ws.NetConn(), text[:rand.N(len(text))])
		w.book.count("hung up")
		return
	}
	_ = ws.WriteMessage(websocket.TextMessage, []byte(m.text)) // the proxy may respond before it has read everything
	_, text, err := ws.ReadMessage()
	if err != nil {
		w.book.wrong("no response on a stream to %.80q: %v", m.text, err)
		return
	}
	status, a := http.StatusOK, answer{}
	if json.Unmarshal(text, &a) == nil { // otherwise, it is the response to a batch
		status = statusOf(a)
	}
	w.expectRefusal(m.text, m.statuses, status)
}

// guessForStream tries to open a stream with a wrong password.
func (w *testbed) guessForStream() {
	ws, resp, err := w.openWebSocket(hostileUser, "guess", hostile.IP)
	switch {
	case err == nil:
		_ = ws.Close()
		w.book.wrong("a wrong password opened a stream")
	case resp == nil || !slices.Contains([]int{http.StatusUnauthorized, http.StatusTooManyRequests}, resp.StatusCode):
		w.book.wrong("the response to a wrong password for a stream: %v, %v", resp, err)
	default:
		w.book.count("attack answered")
	}
}

// slowStreams lists slowClients on streams.
func (w *testbed) slowStreams() map[string]slowClient {
	const list = `{"id":1,"method":"bdev_lvol_get_lvols"}`
	dial := func() (net.Conn, error) {
		ws, err := w.hostileStream()
		if err != nil {
			return nil, err
		}
		return ws.NetConn(), nil
	}
	return map[string]slowClient{
		"slow message":   {dial, func(c net.Conn) error { return drip(c, frame(len(list), list)) }},
		"half a message": {dial, func(c net.Conn) error { _, err := io.WriteString(c, frame(1000, list)); return err }},
		"deaf stream": {dial, func(c net.Conn) error {
			_, err := io.WriteString(c, strings.Repeat(frame(len(list), list), 50))
			return err
		}},
		"silent stream":         {dial, func(net.Conn) error { return nil }},
		"no frames of a stream": {dial, func(c net.Conn) error { _, err := io.WriteString(c, strings.Repeat("\xff", 500)); return err }},
	}
}

// frame returns a client's frame for a text message of length bytes, with a zero mask. text may be
// only a part of the message.
func frame(length int, text string) string {
	const final, text1, masked, length16, length64 = 0x80, 1, 0x80, 126, 127
	header := []byte{final | text1}
	switch {
	case length < length16:
		header = append(header, masked|byte(length))
	case length < 1<<16:
		header = append(header, masked|length16, byte(length>>8), byte(length))
	default:
		header = append(header, masked|length64, 0, 0, 0, 0, byte(length>>24), byte(length>>16), byte(length>>8), byte(length))
	}
	return string(header) + "\x00\x00\x00\x00" + text
}
