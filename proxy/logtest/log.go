// Package logtest records a log in tests. It must not depend on any other package. Only tests may
// use it.
package logtest

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// A Log records all text written to it. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all text written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how often text occurs in the log.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }

// Lines returns the decoded lines with this message. Each line of the log must be JSON.
func (l *Log) Lines(t testing.TB, message string) (found []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}
