package auditlog

import (
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// hostile returns a name that contains every unsafe Unicode character.
func hostile() string {
	var b strings.Builder
	for r := rune(0); r <= 0xffff; r++ {
		if printable.Unsafe(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// hostileEntry returns an entry with hostile text in every field that clients or the target
// control.
func hostileEntry() *Entry {
	return &Entry{
		RequestID: "1", User: hostile(), Credential: hostile()[:60], Source: source, Method: "bdev_lvol_create",
		Params: map[string]any{"lvol_name": hostile(), "lvs_name": "lvs0", hostile(): hostile()}, Tenant: "t", Decision: Allowed, Rule: hostile(), Status: 200, Err: errors.New(hostile()),
	}
}

func TestFeedEscapesUnsafeCharacters(t *testing.T) {
	l, _ := newFed(slog.LevelInfo)
	require.Equal(t, Written, l.Write(hostileEntry()))
	lines, _, _, _ := l.Feed.From(0)
	require.Len(t, lines, 1)
	text := string(lines[0].JSON())
	assert.True(t, printable.Valid(text), "%q", text)
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &fields))
	assert.Equal(t, hostile(), fields["user"], "a JSON decoder returns the original name")
	assert.Equal(t, hostile(), fields["params"].(map[string]any)["lvol_name"])
}

func TestJournalEscapesUnsafeCharacters(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "journal")
	d := newJournald(t, socket)
	j, err := OpenJournal(socket, slog.LevelInfo)
	require.NoError(t, err)
	require.Equal(t, Written, New(slog.New(j), rpcschema.Default()).Write(hostileEntry()))
	fields := d.next()
	for name, values := range fields {
		for _, value := range values {
			assert.True(t, printable.Valid(value), "%s: %q", name, value)
		}
	}
	assert.Equal(t, []string{printable.String(hostile())}, fields["SPDKGATE_USER"])
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(fields["MESSAGE"][0]), &line))
	assert.Equal(t, hostile(), line["user"])
}
