package auditlog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/logtest"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// A journald imitates journald, and receives entries.
type journald struct {
	t    *testing.T
	conn *net.UnixConn
}

func newJournald(t *testing.T, socket string) *journald {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &journald{t, conn}
}

// next returns the fields of the next entry.
func (j *journald) next() map[string][]string {
	datagram := make([]byte, 1<<20)
	n, err := j.conn.Read(datagram)
	require.NoError(j.t, err)
	fields, rest := map[string][]string{}, datagram[:n]
	for len(rest) > 0 {
		name, after, ok := bytes.Cut(rest, []byte("\n"))
		require.True(j.t, ok)
		size := binary.LittleEndian.Uint64(after)
		value := string(after[8 : 8+size])
		require.EqualValues(j.t, '\n', after[8+size])
		rest = after[9+size:]
		fields[string(name)] = append(fields[string(name)], value)
	}
	return fields
}

func TestJournalEntriesHaveSearchableFields(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "journal")
	_, err := OpenJournal(socket, slog.LevelInfo)
	require.ErrorIs(t, err, os.ErrNotExist)
	d := newJournald(t, socket)
	j, err := OpenJournal(socket, slog.LevelInfo)
	require.NoError(t, err)
	l := New(slog.New(j), rpcschema.Default())
	e := &Entry{
		RequestID: "1", User: "ann\nPRIORITY=0", Auth: "basic", Credential: "c", Source: source, Method: "bdev_lvol_create",
		Params: map[string]any{"lvol_name": "v", "lvs_name": "lvs0"}, Tenant: "t", Decision: Allowed, Rule: "role r: allow *", Status: 200,
	}
	assert.Equal(t, Written, l.Write(e))
	fields := d.next()
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(fields["MESSAGE"][0]), &line))
	assert.Equal(t, "call", line["msg"])
	assert.Equal(t, map[string]any{"lvol_name": "v", "lvs_name": "lvs0"}, line["params"])
	delete(fields, "MESSAGE")
	resources := fields["SPDKGATE_RESOURCES"]
	delete(fields, "SPDKGATE_RESOURCES")
	assert.Contains(t, resources, "lvstore:lvs0", "one field for each value")
	assert.Equal(t, map[string][]string{
		"PRIORITY": {"6"}, "SYSLOG_IDENTIFIER": {"spdk-proxy"}, "SPDKGATE_REQUEST_ID": {"1"}, "SPDKGATE_USER": {`ann\u000aPRIORITY=0`}, "SPDKGATE_AUTH": {"basic"},
		"SPDKGATE_CREDENTIAL": {"c"}, "SPDKGATE_SOURCE": {"192.0.2.1:5"}, "SPDKGATE_METHOD": {"bdev_lvol_create"}, "SPDKGATE_TENANT": {"t"},
		"SPDKGATE_DECISION": {"allow"}, "SPDKGATE_RULE": {"role r: allow *"}, "SPDKGATE_STATUS": {"200"},
	}, fields, "a value cannot add a field")

	e.Decision, e.NotExecuted, e.Err, e.Params = Denied, true, errors.New("no"), map[string]any{"name": strings.Repeat("ä", maxParams/2-20)}
	assert.Equal(t, Written, l.Write(e))
	fields = d.next()
	assert.Equal(t, []string{"4"}, fields["PRIORITY"])
	assert.Equal(t, []string{"no"}, fields["SPDKGATE_ERROR"])
	assert.Greater(t, len(fields["MESSAGE"][0]), maxParams/2)

	// A restart of journald creates a new socket.
	require.NoError(t, d.conn.Close())
	require.NoError(t, os.RemoveAll(socket))
	other := new(logtest.Log)
	failures := 0
	l = New(slog.New(&Fallback{First: j, Second: slog.NewJSONHandler(other, nil), Failed: func() { failures++ }}), rpcschema.Default())
	for range 2 {
		assert.Equal(t, Written, l.Write(e))
	}
	assert.Len(t, other.Lines(t, message), 2, "no line is lost")
	assert.Equal(t, 2, failures)
	assert.Len(t, other.Lines(t, "the audit log cannot be written: its lines appear here until it can be written"), 1)
	d = newJournald(t, socket)
	assert.Equal(t, Written, l.Write(e))
	assert.Equal(t, []string{"deny"}, d.next()["SPDKGATE_DECISION"])
	assert.Len(t, other.Lines(t, message), 2)
	assert.Len(t, other.Lines(t, "the audit log is written to its destination again"), 1)
}
