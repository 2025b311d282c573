package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A wire is a raw connection to the target.
type wire struct {
	*suite
	conn *net.UnixConn
	dec  *json.Decoder
}

// quiet is how long a target must send no data to be considered silent.
const quiet = 150 * time.Millisecond

func (s *suite) dial() *wire {
	s.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.env.Socket, Net: "unix"})
	require.NoError(s, err)
	s.Cleanup(func() { _ = conn.Close() })
	return &wire{suite: s, conn: conn, dec: json.NewDecoder(conn)}
}

// sent sends text on a new connection, and returns the connection. The target may close it before
// all of the text has been sent.
func (s *suite) sent(text string) *wire {
	s.Helper()
	w := s.dial()
	_, _ = io.WriteString(w.conn, text)
	return w
}

// next returns the next value from the target.
func (w *wire) next() any {
	w.Helper()
	require.NoError(w, w.conn.SetReadDeadline(time.Now().Add(callTimeout)))
	var raw json.RawMessage
	require.NoError(w, w.dec.Decode(&raw))
	value, err := jsonrpc.DecodeValue(raw, jsonrpc.Limits{})
	require.NoError(w, err)
	return value
}

// response returns the next value, which must be a single response.
func (w *wire) response() map[string]any {
	w.Helper()
	object, ok := w.next().(map[string]any)
	require.True(w, ok, "a response is an object")
	require.Equal(w, "2.0", object["jsonrpc"])
	return object
}

// answered checks that the next response contains the given id and the given error code. Code 0
// means success.
func (w *wire) answered(id any, code int) {
	w.Helper()
	checkResponse(w.suite, w.response(), id, code)
}

func checkResponse(s *suite, response map[string]any, id any, code int) {
	s.Helper()
	assert.Equal(s, id, response["id"])
	if code == 0 {
		assert.Contains(s, response, "result")
		assert.NotContains(s, response, "error")
		return
	}
	e, ok := response["error"].(map[string]any)
	require.True(s, ok, "%v", response)
	assert.Equal(s, json.Number(fmt.Sprint(code)), e["code"])
	assert.NotContains(s, response, "result")
}

// closed checks that the target closes the connection without sending anything else.
func (w *wire) closed() {
	w.Helper()
	require.NoError(w, w.conn.SetReadDeadline(time.Now().Add(callTimeout)))
	rest, err := io.ReadAll(io.MultiReader(w.dec.Buffered(), w.conn))
	assert.True(w, err == nil || errors.Is(err, syscall.ECONNRESET), "%v", err)
	assert.Empty(w, string(bytes.TrimSpace(rest)))
}

// read reads and returns the next n bytes.
func (w *wire) read(n int) string {
	w.Helper()
	require.NoError(w, w.conn.SetReadDeadline(time.Now().Add(callTimeout)))
	buf := make([]byte, n)
	_, err := io.ReadFull(w.conn, buf)
	require.NoError(w, err)
	return string(buf)
}

// silent checks that no data arrives and that the connection stays open.
func (w *wire) silent() {
	w.Helper()
	require.NoError(w, w.conn.SetReadDeadline(time.Now().Add(quiet)))
	n, err := w.conn.Read(make([]byte, 1))
	assert.Zero(w, n)
	assert.ErrorIs(w, err, os.ErrDeadlineExceeded)
}

const versionCall = `{"jsonrpc":"2.0","id":1,"method":"spdk_get_version"}`

// slowCall returns a call that fails with -110 (timed out) after ms milliseconds.
func slowCall(id int, ms int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"bdev_get_bdevs","params":{"name":"nobody at all","timeout":%d}}`, id, ms)
}

func testWire(s *suite) {
	one := json.Number("1")
	s.group("requests", func(s *suite) {
		for text, want := range map[string]struct {
			id   any
			code int
		}{
			versionCall:                            {one, 0},
			"\n\n  " + versionCall + "\n":          {one, 0},
			`{"id":1,"method":"spdk_get_version"}`: {one, 0},
			`{"jsonrpc":"2.0","id":1,"method":"spdk_get_version","params":null}`:                                            {one, 0},
			`{"jsonrpc":"2.0","id":"ä\"","method":"spdk_get_version"}`:                                                      {`ä"`, 0},
			`{"jsonrpc":"2.0","id":1.50,"method":"spdk_get_version"}`:                                                       {json.Number("1.50"), 0},
			`{"jsonrpc":"2.0","id":18446744073709551616,"method":"spdk_get_version"}`:                                       {json.Number("18446744073709551616"), 0},
			`{"jsonrpc":"2.0","id":1,"method":"spdk\u005fget_version"}`:                                                     {one, 0},
			`{"jsonrpc":"2.0","id":1,"method":"nosuch"}`:                                                                    {one, noMethod},
			`{"jsonrpc":"2.0","id":null,"method":"nosuch"}`:                                                                 {nil, noMethod},
			`{"jsonrpc":"2.0","method":"nosuch"}`:                                                                           {nil, noMethod},
			`{"jsonrpc":"2.0","id":1,"method":"spdk_get_version\u0000x"}`:                                                   {one, noMethod},
			`{"jsonrpc":"2.0","id":1}`:                                                                                      {nil, invalidRequest},
			`{"jsonrpc":"2.0","id":1,"method":5}`:                                                                           {nil, invalidRequest},
			`{"jsonrpc":"1.0","id":1,"method":"spdk_get_version"}`:                                                          {nil, invalidRequest},
			`{"jsonrpc":2.0,"id":1,"method":"spdk_get_version"}`:                                                            {nil, invalidRequest},
			`{"jsonrpc":"2.0","id":[],"method":"spdk_get_version"}`:                                                         {nil, invalidRequest},
			`{"jsonrpc":"2.0","id":true,"method":"spdk_get_version"}`:                                                       {nil, invalidRequest},
			`{"jsonrpc":"2.0","id":1,"method":"spdk_get_version","x":1}`:                                                    {nil, invalidRequest},
			`{"jsonrpc":"2.0","id":1,"Method":"spdk_get_version"}`:                                                          {nil, invalidRequest},
			`{"jsonrpc":"2.0","id":1,"id":2,"method":"spdk_get_version"}`:                                                   {nil, invalidRequest},
			`{"jsonrpc":"2.0","id":1,"method":"nosuch","method":"spdk_get_version"}`:                                        {nil, invalidRequest},
			`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":"x"}`:                                               {one, invalidRequest},
			`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":5}`:                                                 {one, invalidRequest},
			`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"name":"a","name":"a"}}`:                           {one, internalError},
			`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"Name":"a"}}`:                                      {one, internalError},
			`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"name":"a\u0000"}}`:                                {one, internalError},
			`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"n\u0061me":"nobody"}}`:                            {one, noDevice},
			`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"name":"a","timeout":-0}}`:                         {one, internalError},
			`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"name":"a","timeout":0.5}}`:                        {one, internalError},
			`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"name":"a","timeout":1.0}}`:                        {one, timedOut},
			`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"name":"a","timeout":20e-1}}`:                      {one, timedOut},
			`{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"name":"a","timeout":1E1}}`:                        {one, timedOut},
			`{"jsonrpc":"2.0","id":1,"method":"nosuch","params":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`: {one, noMethod},
			"5":     {nil, invalidRequest},
			`"x" `:  {nil, invalidRequest},
			"null ": {nil, invalidRequest},
			"[]":    {nil, invalidRequest},
		} {
			w := s.sent(text)
			w.answered(want.id, want.code)
			_, err := io.WriteString(w.conn, `{"jsonrpc":"2.0","id":99,"method":"spdk_get_version"}`)
			require.NoError(s, err)
			w.answered(json.Number("99"), 0)
		}
		for _, text := range []string{"", "  ", versionCall[:20]} {
			s.sent(text).silent()
		}
		for _, text := range []string{`{"jsonrpc":"2.0","method":"spdk_get_version"}`, `{"jsonrpc":"2.0","id":null,"method":"spdk_get_version"}`} {
			w := s.sent(text)
			if s.before("v26.05") { // a truncated response
				assert.Equal(s, `{"jsonrpc":"2.0","id":null,"result":{`, w.read(37))
			} else {
				w.silent()
			}
		}
	})
	s.group("broken", func(s *suite) {
		for _, text := range []string{
			"garbage", `{'a':1}`, `{"a":tru}`, `{"a":1 "b":2}`, `{a:1}`, "// c\n" + versionCall, "\ufeff" + versionCall, "}", `{"a":NaN}`, "{\"a\":\"\t\"}",
			`{"a":"\x"}`, `{"a":1]`, `{"a":01}`, `{"a":+1}`, `{"a":"\ud83d"}`, "{\"a\":\"\xff\"}", "\x00" + versionCall, versionCall + "\x00", "GET / HTTP/1.1\r\n\r\n",
			strings.TrimSuffix(versionCall, "}") + ",}",
			versionCall + "garbage", // the target also drops the response to the valid call
			slowCall(1, 700) + "garbage",
			`{"jsonrpc":"2.0","id":1,"method":"nosuch","params":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		} {
			s.sent(text).closed()
		}
	})
	s.group("stream", func(s *suite) {
		w := s.sent(versionCall + "\n" + strings.Replace(versionCall, "1,", "2,", 1) + `{"jsonrpc":"2.0","id":3,"method":"nosuch"}`)
		w.answered(one, 0)
		w.answered(json.Number("2"), 0)
		w.answered(json.Number("3"), noMethod)

		w = s.sent(slowCall(1, 300) + `{"jsonrpc":"2.0","id":2,"method":"spdk_get_version"}`)
		w.answered(json.Number("2"), 0)
		w.answered(one, timedOut)

		w = s.sent(versionCall[:20])
		w.silent()
		_, err := io.WriteString(w.conn, versionCall[20:])
		require.NoError(s, err)
		w.answered(one, 0)

		w = s.dial()
		const many = 6000
		go func() { _, _ = io.WriteString(w.conn, strings.Repeat(versionCall, many)) }()
		for range many {
			w.answered(one, 0)
		}
	})
	s.group("halfClosed", func(s *suite) {
		w := s.sent(versionCall)
		require.NoError(s, w.conn.CloseWrite())
		w.answered(one, 0)
		w.closed()
		w = s.sent(slowCall(1, 300))
		require.NoError(s, w.conn.CloseWrite())
		if s.before("v26.05") {
			w.answered(one, timedOut)
		}
		w.closed()
	})
	s.group("limits", testWireLimits)
	s.group("batches", testBatches)
	s.group("connections", testConnections)
}

func testWireLimits(s *suite) {
	lim := jsonrpc.LimitsV2605
	if s.before("v26.05") {
		lim = jsonrpc.LimitsBeforeV2605
	}
	sized := func(n int) string {
		const head, tail = `{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs","params":{"name":"`, `"}}`
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	s.sent(sized(lim.Bytes)).answered(json.Number("1"), noDevice)
	s.sent(sized(lim.Bytes + 1)).closed()
	s.sent(sized(lim.Bytes + 40000)).closed()
	counted := func(n int) string { // the request has 11 values in addition to the numbers
		return `{"jsonrpc":"2.0","id":1,"method":"nosuch","params":[` + strings.Repeat("1,", n-12) + `1]}`
	}
	s.sent(counted(lim.Values)).answered(json.Number("1"), noMethod)
	s.sent(counted(lim.Values + 1)).closed()
}

func testBatches(s *suite) {
	if s.before("v26.05") {
		s.sent("["+versionCall+"]").answered(nil, invalidRequest)
		return
	}
	batch := func(text string) []any {
		s.Helper()
		list, ok := s.sent(text).next().([]any)
		require.True(s, ok)
		return list
	}
	list := batch("[" + versionCall + `,{"jsonrpc":"2.0","id":2,"method":"nosuch"},5,{"jsonrpc":"2.0","method":"spdk_get_version"}]`)
	require.Len(s, list, 3, "a notification gets no response")
	checkResponse(s, list[0].(map[string]any), json.Number("1"), 0)
	checkResponse(s, list[1].(map[string]any), json.Number("2"), noMethod)
	checkResponse(s, list[2].(map[string]any), nil, invalidRequest)
	require.Len(s, batch("["+versionCall+"]"), 1)
	list = batch("[[" + versionCall + "]]")
	checkResponse(s, list[0].(map[string]any), nil, invalidRequest)
	s.sent(`[{"jsonrpc":"2.0","method":"spdk_get_version"}]`).silent()

	w := s.sent("[" + slowCall(1, 300) + "," + strings.Replace(versionCall, "1,", "2,", 1) + "]" + strings.Replace(versionCall, "1,", "3,", 1))
	w.answered(json.Number("3"), 0)
	list = w.next().([]any)
	require.Len(s, list, 2)
	checkResponse(s, list[0].(map[string]any), json.Number("2"), 0)
	checkResponse(s, list[1].(map[string]any), json.Number("1"), timedOut)
}

// testConnections checks that the target serves at most 64 connections, and that further
// connections wait until one of the 64 is closed.
func testConnections(s *suite) {
	conns := make([]*wire, 70)
	for i := range conns {
		conns[i] = s.sent(versionCall)
	}
	served := 0
	for _, w := range conns {
		require.NoError(s, w.conn.SetReadDeadline(time.Now().Add(time.Second)))
		var response map[string]any
		err := w.dec.Decode(&response)
		if err != nil {
			require.ErrorIs(s, err, os.ErrDeadlineExceeded)
			break
		}
		served++
	}
	assert.LessOrEqual(s, served, 64)
	assert.GreaterOrEqual(s, served, 60, "the suite itself has one or two connections")
	last := conns[len(conns)-1]
	for _, w := range conns[:10] {
		require.NoError(s, w.conn.Close())
	}
	last.dec = json.NewDecoder(last.conn)
	last.answered(json.Number("1"), 0)
}
