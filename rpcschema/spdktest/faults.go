package spdktest

import (
	"path"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A Strike is a fault's effect on a call.
type Strike int

const (
	Nothing Strike = iota // no effect besides the delay
	Hang                  // never respond
	Close                 // close the connection
	Crash                 // crash the target; Target.Restart starts it again
	Fail                  // respond with Fault.Error
)

// A Fault makes calls to a method fail.
type Fault struct {
	// Method is a method's name, or a glob such as nvmf_*. If empty, it matches every method.
	Method string
	// Skip is the number of matching calls to let through first.
	Skip int
	// Times is the number of calls to affect after that: 0 means one, and a negative number means
	// all.
	Times int
	// Delay is how long to wait before any other effect. Other calls continue in the meantime.
	Delay time.Duration
	// Until, if not nil, further delays the effect until the channel is closed.
	Until <-chan struct{}
	Do    Strike
	// Executed makes the fault occur after the call has been executed instead of before.
	Executed bool
	// Error is the error returned for Fail; if it is nil, the code is -32603.
	Error *jsonrpc.Error
}

type faults struct {
	mu     sync.Mutex
	active []*Fault
}

// Inject adds a fault. If several faults match a call, the one that was injected first applies.
func (t *Target) Inject(f Fault) {
	if f.Times == 0 {
		f.Times = 1
	}
	t.faults.mu.Lock()
	defer t.faults.mu.Unlock()
	t.faults.active = append(t.faults.active, &f)
}

// ClearFaults removes all faults. It does not affect calls that a fault has already changed.
func (t *Target) ClearFaults() {
	t.faults.mu.Lock()
	defer t.faults.mu.Unlock()
	t.faults.active = nil
}

// strike returns the fault that applies to a call of method, or nil.
func (f *faults) strike(method string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.active {
		if match, _ := path.Match(fault.Method, method); !match && fault.Method != "" {
			continue
		}
		if fault.Skip > 0 {
			fault.Skip--
			continue
		}
		if fault.Times == 0 {
			continue
		}
		if fault.Times > 0 {
			fault.Times--
		}
		return fault
	}
	return nil
}

// faulty handles a call that is subject to a fault.
func (s *server) faulty(r *request, m *method, params map[string]any, f *Fault) {
	select {
	case <-time.After(f.Delay):
	case <-s.down:
		return
	}
	if f.Until != nil {
		select {
		case <-f.Until:
		case <-s.down:
			return
		}
	}
	if f.Do == Nothing {
		s.execute(r, m, params)
		return
	}
	if f.Executed {
		_, _ = s.perform(r, m, params)
	}
	switch f.Do {
	case Close:
		r.conn.kill()
	case Crash:
		s.crash()
	case Fail:
		e := f.Error
		if e == nil {
			e = jsonrpc.Errorf(jsonrpc.CodeInternalError, "Internal error")
		}
		if !f.Executed {
			s.record(r, params, e)
		}
		r.fail(e)
	}
}
