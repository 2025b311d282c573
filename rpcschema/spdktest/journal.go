package spdktest

import (
	"slices"
	"sync"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A Call is a call received by the target.
type Call struct {
	Method string
	// Params contains the decoded parameters, which may include secrets. It is nil if the call had
	// no parameters or if they could not be decoded.
	Params map[string]any
	// Err is the error that the call returned, or nil.
	Err *jsonrpc.Error
}

// journalSize is the number of calls that a Target records.
const journalSize = 1 << 14

type journal struct {
	mu    sync.Mutex
	calls []Call // a ring buffer once it is full
	next  int
}

func (j *journal) add(c Call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.calls) < journalSize {
		j.calls = append(j.calls, c)
		return
	}
	j.calls[j.next] = c
	j.next = (j.next + 1) % journalSize
}

// Calls lists the calls that the target executed or refused, oldest first. It keeps the last 16,384
// calls, even across crashes.
func (t *Target) Calls() []Call {
	t.journal.mu.Lock()
	defer t.journal.mu.Unlock()
	return slices.Concat(t.journal.calls[t.journal.next:], t.journal.calls[:t.journal.next])
}

// ForgetCalls clears the list returned by Calls.
func (t *Target) ForgetCalls() {
	t.journal.mu.Lock()
	defer t.journal.mu.Unlock()
	t.journal.calls, t.journal.next = nil, 0
}
