package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The soak runs this test binary as its simulated target.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-simulate" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestSoak runs a short soak, so that a change that breaks `make soak` is noticed.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	require.NoError(t, soak(t.Context(), plan{span: 8 * time.Second, kill: 3 * time.Second, reload: 700 * time.Millisecond, tenants: 4, workers: 2, over: overBoth, dir: t.TempDir()}))
}

func TestViolationsAreDetected(t *testing.T) {
	b := newBook()
	_, err := b.Write([]byte(`{"level":"INFO","msg":"call","user":"ann","request_id":"1"}` + "\n" + `{"level":"ERROR","msg":"panic"}` + "\n" + `{"level":"ERROR","msg":"` + refusedReload + `"}` + "\nhalf a li"))
	require.NoError(t, err)
	_, err = b.Write([]byte("ne\n"))
	require.NoError(t, err)
	user, ok := b.logged("1")
	assert.True(t, ok)
	assert.Equal(t, "ann", user)
	assert.Equal(t, 2, b.nWrong, "a panic, and a line that is not JSON")
	assert.Zero(t, b.errors)

	w := &testbed{book: newBook()}
	x := newTenant(w, 0)
	x.expectOwn(reply{status: 200, result: []any{map[string]any{"name": "team-1-0-1", "alias": "lvs-team-1/team-1-0-1"}}})
	assert.Equal(t, 1, w.book.nWrong, "a list has another tenant's volume")
	x.expectVolume(reply{status: 200, result: []any{}}, "a", "u")
	assert.Equal(t, 2, w.book.nWrong, "a list lacks the volume")
	x.expectDone(reply{status: 200, code: -19, targetUp: true})
	x.expectDone(reply{status: 502, targetUp: true})
	x.expectDone(reply{status: 403})
	assert.Equal(t, 5, w.book.nWrong)
	x.expectDone(reply{status: 502})
	x.expectDone(reply{status: 200, code: -19})
	assert.Equal(t, 5, w.book.nWrong, "no violations: the target was killed meanwhile")
}

// On a stream, each response must belong to a waiting call, and a call without a response fails.
func TestStreamResponsesBelongToCalls(t *testing.T) {
	o := &openStream{waiting: map[string]chan answer{}}
	first, second := make(chan answer, 1), make(chan answer, 1)
	require.True(t, o.expect("1", first))
	require.True(t, o.expect(`"2"`, second))
	require.NoError(t, o.deliver(answer{ID: []byte("1"), Result: "one"}))
	assert.Equal(t, "one", (<-first).Result)
	require.ErrorContains(t, o.deliver(answer{ID: []byte("1")}), "id 1")
	require.NoError(t, o.deliver(answer{Method: "spdkgate.draining"}))
	assert.False(t, o.expect("3", first), "further calls need a new connection")
	o.end(io.ErrUnexpectedEOF)
	_, answered := <-second
	assert.False(t, answered)
	require.ErrorIs(t, o.err, io.ErrUnexpectedEOF)
}

// A stream that a failed write has closed may still receive the notice that it is being replaced.
func TestClosedStreamIsReplaced(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if assert.NoError(t, err) {
			_ = ws.Close()
		}
	}))
	defer server.Close()
	ws, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), nil)
	require.NoError(t, err)
	require.NoError(t, ws.Close())
	o := &openStream{ws: ws, waiting: map[string]chan answer{}}
	require.NoError(t, o.deliver(answer{Method: "spdkgate.draining"}))
	assert.False(t, o.usable())
}

// The error for a target that does not start contains the end of its log, which is deleted together
// with the soak's directory.
func TestErrorExplainsATargetThatDoesNotStart(t *testing.T) {
	program := filepath.Join(t.TempDir(), "spdk_tgt")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho no hugepages here: \"$@\"\nexit 3\n"), 0o755))
	t.Setenv("SPDK_TGT", program)
	t.Setenv("SPDK_TGT_ARGS", "-m 0x2")
	err := soak(t.Context(), plan{span: time.Second, kill: time.Second, reload: time.Second, tenants: 1, workers: 1, over: overBoth})
	require.ErrorContains(t, err, "exit status 3")
	require.ErrorContains(t, err, "no hugepages here: -r ")
	require.ErrorContains(t, err, "-m 0x1 --limit-coredump -m 0x2")
	require.ErrorContains(t, err, "$SPDK_TGT_ARGS")
}
