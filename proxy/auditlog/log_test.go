package auditlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/logtest"
	"github.com/spdkgate/spdkgate/rpcschema"
)

var source = Source{Address: netip.MustParseAddrPort("192.0.2.1:5")}

func TestEntryIsWrittenAsOneLine(t *testing.T) {
	book := new(logtest.Log)
	l := New(slog.New(slog.NewJSONHandler(book, nil)), rpcschema.Default())
	e := &Entry{
		RequestID: "1", User: "a", Auth: "password", Credential: strings.Repeat("c", 200), Source: source,
		Method: "bdev_lvol_create", Params: map[string]any{"lvol_name": "v", "lvs_name": "lvs0"},
		Translations: []rpcschema.Translation{{From: "size", To: "size_in_mib"}},
		Tenant:       "t", Hidden: 1, Raised: []string{"clear_method"}, Batch: "1/2",
		Decision: Allowed, Rule: "role r: allow *", Status: 200,
	}
	assert.Equal(t, Written, l.Write(e))
	lines := book.Lines(t, message)
	require.Len(t, lines, 1)
	delete(lines[0], "time")
	assert.Equal(t, map[string]any{
		"level": "INFO", "msg": "call", "request_id": "1", "user": "a", "auth": "password", "credential": strings.Repeat("c", maxName), "source": "192.0.2.1:5",
		"method": "bdev_lvol_create", "params": map[string]any{"lvol_name": "v", "lvs_name": "lvs0"}, "resources": lines[0]["resources"],
		"translated": []any{"size to size_in_mib"}, "tenant": "t", "hidden": 1.0, "raised": []any{"clear_method"}, "batch": "1/2",
		"decision": "allow", "rule": "role r: allow *", "status": 200.0, "latency_ms": 0.0,
	}, lines[0])
	assert.Contains(t, lines[0]["resources"], "lvstore:lvs0")
}

func TestLongResourceListsAreTruncatedAndCounted(t *testing.T) {
	var hosts []any
	for i := range 2 * maxResources {
		hosts = append(hosts, map[string]any{"bdev_name": fmt.Sprint("b", i)})
	}
	params := map[string]any{"name": "r", "base_bdevs": hosts}
	var names []any
	for i := range 2 * maxResources {
		names = append(names, fmt.Sprint("b", i))
	}
	params["base_bdevs"] = names
	list := resources(rpcschema.Default(), "bdev_raid_create", params)
	require.Len(t, list, maxResources+1)
	assert.Regexp(t, `^and \d+ more$`, list[maxResources])
}

func TestTextLogRespectsTheLevel(t *testing.T) {
	book := new(logtest.Log)
	l := New(slog.New(slog.NewTextHandler(book, &slog.HandlerOptions{Level: slog.LevelWarn})), rpcschema.Default())
	e := &Entry{Source: source, Method: "bdev_get_bdevs", Params: map[string]any{"a": json.Number("1"), "b": "<x>"}, Decision: Denied, Code: 1, Err: errors.New("no"), NotExecuted: true}
	assert.Equal(t, Written, l.Write(e))
	assert.Contains(t, book.String(), `params="{\"a\":1,\"b\":\"<x>\"}"`)
	e.Err, e.NotExecuted, e.Decision = nil, false, Allowed
	assert.Equal(t, Hidden, l.Write(e))
	assert.Equal(t, 1, strings.Count(book.String(), "\n"), "at level warn, the log contains only calls that were not executed")
}

func TestLongParametersAreReplacedInTheLog(t *testing.T) {
	assert.Equal(t, "(cannot be encoded)", loggable(map[string]any{"a": func() {}}))
	assert.Contains(t, loggable(map[string]any{"a": strings.Repeat("x", maxParams)}), "too long to be logged")
}

// ReadLearned derives each user's allowed methods from lines written by Write.
func TestRolesAreLearnedFromTheLog(t *testing.T) {
	book := new(logtest.Log)
	log := slog.New(slog.NewJSONHandler(book, nil))
	l := New(log, rpcschema.Default())
	for _, e := range []Entry{
		{User: "a", Method: "bdev_get_bdevs", Decision: Allowed, Status: 200},
		{User: "a", Method: "bdev_lvol_create", Decision: Learned, Status: 200},
		{User: "a", Method: "bdev_lvol_delete", Decision: Denied, Status: 403},
		{User: "a", Method: "bdev_null_create", Decision: Allowed, Status: 400},
		{User: "a", Method: "no_method", Decision: Undecided, Status: 400},
		{User: "b", Method: "bdev_null_create", Decision: Allowed, Status: 200},
		{User: "c", Method: "bdev_null_create", Decision: Allowed, Status: 200},
		{User: "d", Method: "bdev_get_bdevs", Decision: Unauthenticated, Status: 401},
	} {
		e.Source = source
		require.Equal(t, Written, l.Write(&e))
	}
	log.Info("another message", "user", "a", "method", "bdev_lvol_resize", "decision", "allow")
	learned, err := ReadLearned(strings.NewReader(book.String()), false, rpcschema.Default())
	require.NoError(t, err)
	assert.Equal(t, 8, learned.Calls)
	assert.Equal(t, 1, learned.Skipped)
	assert.Equal(t, map[string]map[string]bool{
		"a": {"bdev_get_bdevs": true, "bdev_lvol_create": true}, "b": {"bdev_null_create": true}, "c": {"bdev_null_create": true},
	}, learned.byUser)
	var roles strings.Builder
	require.NoError(t, learned.WriteRoles(&roles))
	assert.Contains(t, roles.String(), "# For a. The built-in role csi-controller has all of it.\n")
	assert.Contains(t, roles.String(), "# For b, c. Learning mode passed no call of b, c: compare")
	assert.Equal(t, `"a\nb", c`, names([]string{"a\nb", "c"}), "a name cannot end the comment")
	assert.Contains(t, roles.String(), "(1 other lines)")
	assert.Contains(t, roles.String(), "learned-of-a:\n    allow:\n      - bdev_get_bdevs\n      - bdev_lvol_create\n")

	learned, err = ReadLearned(strings.NewReader("host spdk-proxy[1]: "+book.String()), true, rpcschema.Default())
	require.NoError(t, err)
	assert.True(t, learned.byUser["a"]["bdev_lvol_delete"])

	_, err = ReadLearned(strings.NewReader("time=x msg=call\n"), false, rpcschema.Default())
	require.ErrorContains(t, err, "log.format json")
	_, err = ReadLearned(strings.NewReader(strings.Repeat("x", 2*maxLogLine)), false, rpcschema.Default())
	require.ErrorContains(t, err, "read the log")
}
