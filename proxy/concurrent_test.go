package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// postConcurrently posts a batch of calls that do not depend on each other.
func (b *bench) postConcurrently(user, password, body string) got {
	b.t.Helper()
	return b.do("POST", "/", user, password, strings.NewReader(body), batchHeader, concurrentBatch)
}

func TestConcurrentBatch(t *testing.T) {
	b := newBench(t, "v26.05")
	g := b.postConcurrently("viewer", viewerPassword, `[{"id":1,"method":"bdev_get_bdevs"},`+createNamed("m0")+`,{"id":3,"method":"no_such"},{"id":4,"method":"bdev_get_bdevs","params":{"nam":"x"}},
		{"method":"bdev_get_bdevs"},{"id":6,"method":"bdev_get_bdevs","x":1},7]`)
	assert.Equal(t, 200, g.StatusCode)
	assert.Equal(t, concurrentBatch, g.Header.Get(batchHeader))
	assert.ElementsMatch(t, []string{"1 []", `"m0" -32003`, "3 -32601", "4 -32602", "6 -32600", "null -32600"}, g.answers(t))

	var places []string
	for _, line := range b.log.Lines(t, "call") {
		assert.Equal(t, g.Header.Get("X-Request-Id"), line["request_id"])
		places = append(places, fmt.Sprint(line["batch"]))
	}
	assert.ElementsMatch(t, []string{"1/7", "2/7", "3/7", "4/7", "5/7", "6/7", "7/7"}, places)
}

// The header changes neither requests of one call, nor the refusal of a whole batch.
func TestConcurrencyIsOfBatchesOnly(t *testing.T) {
	b := newBench(t, "v26.05")
	g := b.postConcurrently("admin", adminPassword, `{"id":1,"method":"bdev_get_bdevs"}`)
	assert.Equal(t, 200, g.StatusCode)
	assert.JSONEq(t, `{"jsonrpc":"2.0","id":1,"result":[]}`, g.body)
	assert.Equal(t, concurrentBatch, g.Header.Get(batchHeader), "so the client learns it")

	g = b.postConcurrently("admin", "wrong", `[{"id":1,"method":"bdev_get_bdevs"}]`)
	assert.Equal(t, 401, g.StatusCode)
	assert.Empty(t, g.Header.Get(batchHeader), "an unauthenticated client learns nothing")

	g = b.postConcurrently("admin", adminPassword, `[{"id":1,"method":"bdev_get_bdevs"},`)
	assert.Equal(t, 400, g.StatusCode)

	g = b.postConcurrently("admin", adminPassword, `[{"method":"bdev_get_bdevs"},{"method":"bdev_get_bdevs"}]`)
	assert.Equal(t, 204, g.StatusCode)
	assert.Empty(t, g.body)

	assert.Empty(t, b.post(`[{"id":1,"method":"bdev_get_bdevs"}]`).Header.Get(batchHeader))
}

// The answer to a call does not wait for that to another call of its batch.
func TestConcurrentBatchIsAnsweredInParts(t *testing.T) {
	b := newBench(t, "v26.05")
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Do: spdktest.Hang, Executed: true})
	r, err := http.NewRequestWithContext(t.Context(), "POST", b.http.URL, strings.NewReader(`[`+createNamed("m0")+`,{"id":2,"method":"bdev_get_bdevs"},{"id":3,"method":"bdev_get_bdevs"}]`))
	require.NoError(t, err)
	r.SetBasicAuth("admin", adminPassword)
	r.Header.Set(batchHeader, concurrentBatch)
	resp, err := b.http.Client().Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	dec := json.NewDecoder(bufio.NewReader(resp.Body))
	_, err = dec.Token()
	require.NoError(t, err)
	ids := map[string]bool{}
	for range 2 {
		var reply struct{ ID json.RawMessage }
		require.NoError(t, dec.Decode(&reply))
		ids[string(reply.ID)] = true
	}
	assert.Equal(t, map[string]bool{"2": true, "3": true}, ids)
	require.Eventually(t, func() bool { return b.proxy.target.InFlight() == 1 }, long, time.Millisecond, "the first call, which may go out last, is still running")
	assert.Len(t, b.log.Lines(t, "call"), 2, "the entries of the others are in the log")

	require.NoError(t, b.target.Close())
	var last struct {
		ID    string
		Error struct{ Code int }
	}
	require.NoError(t, dec.Decode(&last))
	assert.Equal(t, "m0", last.ID)
	assert.Equal(t, -32054, last.Error.Code)
	_, err = dec.Token()
	require.NoError(t, err)
}
