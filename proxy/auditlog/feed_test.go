package auditlog

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/logtest"
	"github.com/spdkgate/spdkgate/rpcschema"
)

func newFed(level slog.Level) (*Log, *logtest.Log) {
	book := new(logtest.Log)
	l := New(slog.New(slog.NewJSONHandler(book, &slog.HandlerOptions{Level: level})), rpcschema.Default())
	l.Feed.SetEnabled(true)
	return l, book
}

func named(method string) *Entry {
	return &Entry{Source: source, User: "a", Method: method, Decision: Allowed, Status: 200}
}

// A line in the feed equals the corresponding line in the log, except for its time.
func TestFeedContainsTheLinesOfTheLog(t *testing.T) {
	l, book := newFed(slog.LevelInfo)
	e := named("bdev_lvol_create")
	e.Params, e.Err, e.Code = map[string]any{"lvol_name": "<v>", "lvs_name": "l"}, errors.New("no\nway"), 1
	require.Equal(t, Written, l.Write(e))
	lines, missed, next, _ := l.Feed.From(0)
	require.Len(t, lines, 1)
	assert.Zero(t, missed)
	assert.EqualValues(t, 1, next)
	_, logged, _ := strings.Cut(strings.TrimSpace(book.String()), ",")
	_, fed, _ := strings.Cut(string(lines[0].JSON()), ",")
	assert.Equal(t, logged, fed)
	assert.NotContains(t, fed, "\n")
}

// The feed contains even the lines that the log's level suppresses.
func TestFeedIgnoresTheLogLevel(t *testing.T) {
	l, book := newFed(slog.LevelError)
	assert.Equal(t, Hidden, l.Write(named("a")))
	lines, _, _, _ := l.Feed.From(0)
	assert.Len(t, lines, 1)
	assert.Empty(t, book.String())
	l.Feed.SetEnabled(false)
	assert.Equal(t, Hidden, l.Write(named("a")))
	lines, missed, _, _ := l.Feed.From(1)
	assert.Empty(t, lines)
	assert.Zero(t, missed)
	l.Feed.SetEnabled(true)
	l.Write(named("b"))
	lines, missed, _, _ = l.Feed.From(0)
	require.Len(t, lines, 1)
	assert.Contains(t, string(lines[0].JSON()), `"method":"b"`)
	assert.EqualValues(t, 1, missed)
}

func TestFeedDropsTheOldestLines(t *testing.T) {
	l, _ := newFed(slog.LevelError)
	for i := range FeedLines + 7 {
		l.Write(named(fmt.Sprint("m", i)))
	}
	lines, missed, next, _ := l.Feed.From(3)
	require.Len(t, lines, FeedLines)
	assert.EqualValues(t, 4, missed)
	assert.EqualValues(t, FeedLines+7, next)
	for i, line := range lines {
		require.EqualValues(t, i+7, line.Number)
		require.Contains(t, string(line.JSON()), fmt.Sprintf(`"method":"m%d"`, i+7))
	}
	lines, missed, _, _ = l.Feed.From(next - 2)
	assert.Len(t, lines, 2)
	assert.Zero(t, missed)
	lines, _, _, _ = l.Feed.From(next + 5)
	assert.Empty(t, lines)
}

// The memory used by long parameters is limited.
func TestFeedSizeIsLimited(t *testing.T) {
	l, _ := newFed(slog.LevelError)
	e := named("bdev_get_bdevs")
	e.Params = map[string]any{"name": strings.Repeat("x", maxParams-100)}
	for range FeedLines {
		l.Write(e)
	}
	lines, _, _, _ := l.Feed.From(0)
	size := 0
	for _, line := range lines {
		size += len(line.JSON())
	}
	assert.LessOrEqual(t, size, feedBytes)
	assert.Greater(t, size, feedBytes/2)
	assert.LessOrEqual(t, l.Feed.size, feedBytes)
	for range FeedLines {
		l.Write(named("a"))
	}
	assert.Equal(t, FeedLines*lineBytes, l.Feed.size)
}

// A new line wakes every watcher.
func TestFeedWakesItsWatchers(t *testing.T) {
	l, _ := newFed(slog.LevelError)
	var all, waiting sync.WaitGroup
	for range 4 {
		waiting.Add(1)
		all.Go(func() {
			seen, ready := uint64(0), false
			for seen < 100 {
				lines, _, next, grown := l.Feed.From(seen)
				for i, line := range lines {
					assert.Equal(t, seen+uint64(i), line.Number)
				}
				if !ready {
					ready = true
					waiting.Done()
				}
				if seen = next; seen < 100 {
					<-grown
				}
			}
		})
	}
	waiting.Wait()
	for range 100 {
		l.Write(named("a"))
	}
	all.Wait()
}
