package drivertest

import (
	"context"
	"sync"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A FaultyCaller passes all calls to Caller except one, which it makes fail. It is safe for
// concurrent use.
type FaultyCaller struct {
	spdkrpc.Caller
	mu       sync.Mutex
	calls    int
	at       int // index of the call to fail: 1 for the next call, 0 for none
	executed bool
	deadly   bool
	answer   *spdkrpc.Error
	before   func() // called before the call with index at, which then succeeds
	failed   string
}

// FailCall makes the n-th call from now on fail; 1 is the next call, and 0 means none. If executed
// is true, the target executes the call, and only the reply is lost. If deadly is true, all later
// calls fail as well, as if the caller had died.
func (f *FaultyCaller) FailCall(n int, executed, deadly bool) {
	f.set(n, executed, deadly, nil, nil)
}

// RefuseCall makes the n-th call from now on fail with SPDK's code for internal errors.
func (f *FaultyCaller) RefuseCall(n int) {
	f.set(n, false, false, &spdkrpc.Error{Kind: spdkrpc.Failed, Code: -32603, Message: "injected failure"}, nil)
}

// BeforeCall runs change before the n-th call from now on, for example to simulate another client.
// No call fails.
func (f *FaultyCaller) BeforeCall(n int, change func()) { f.set(n, false, false, nil, change) }

// Reset stops the failures and restarts the count of calls at 0.
func (f *FaultyCaller) Reset() { f.set(0, false, false, nil, nil) }

func (f *FaultyCaller) set(n int, executed, deadly bool, answer *spdkrpc.Error, before func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.at, f.executed, f.deadly, f.answer, f.before, f.failed = 0, n, executed, deadly, answer, before, ""
}

// Calls returns the number of calls since FailCall, RefuseCall or Reset.
func (f *FaultyCaller) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// FailedMethod returns the method of the failed call, or of the call after a change by BeforeCall.
// It returns an empty string if there was no such call yet.
func (f *FaultyCaller) FailedMethod() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Call implements [spdkrpc.Caller].
func (f *FaultyCaller) Call(ctx context.Context, method string, params, result any) error {
	f.mu.Lock()
	f.calls++
	fails := f.at > 0 && (f.calls == f.at || f.deadly && f.calls > f.at)
	first := fails && f.calls == f.at
	if first {
		f.failed = method
	}
	executed, answer, before := f.executed && first, f.answer, f.before
	f.mu.Unlock()
	if first && before != nil {
		before()
		fails = false
	}
	switch {
	case !fails:
		return f.Caller.Call(ctx, method, params, result)
	case executed:
		_ = f.Caller.Call(ctx, method, params, nil)
		return lostReply(method)
	case answer != nil:
		err := *answer
		err.Method = method
		return &err
	}
	return &spdkrpc.Error{Method: method, Kind: spdkrpc.Unreachable, Message: "injected failure"}
}

func lostReply(method string) error {
	return &spdkrpc.Error{Method: method, Kind: spdkrpc.OutcomeUnknown, Message: "the reply was lost"}
}

// A FirstCall runs functions around the first call of Method, for example to simulate another
// controller that acts at the same time. It passes all other calls to Caller.
type FirstCall struct {
	spdkrpc.Caller
	Method string
	// Before is called before the target receives the call. If Before returns an error, Call
	// returns that error, and the target never receives the call.
	Before func(ctx context.Context, params any) error
	// After is called after the target has executed the call.
	After func(ctx context.Context)
	// LoseReply drops the target's response.
	LoseReply bool

	once sync.Once
}

// Call implements [spdkrpc.Caller].
func (c *FirstCall) Call(ctx context.Context, method string, params, result any) error {
	first := false
	if method == c.Method {
		c.once.Do(func() { first = true })
	}
	if !first {
		return c.Caller.Call(ctx, method, params, result)
	}
	if c.Before != nil {
		if err := c.Before(ctx, params); err != nil {
			return err
		}
	}
	if c.LoseReply {
		result = nil
	}
	err := c.Caller.Call(ctx, method, params, result)
	if c.After != nil {
		c.After(ctx)
	}
	if c.LoseReply {
		return lostReply(method)
	}
	return err
}

// Connected makes hosts appear connected to every subsystem, because no real host connects to a
// simulated target.
type Connected struct {
	spdkrpc.Caller
	Hosts []string // host NQNs
}

// Call implements [spdkrpc.Caller].
func (c Connected) Call(ctx context.Context, method string, params, result any) error {
	err := c.Caller.Call(ctx, method, params, result)
	if list, ok := result.(*[]spdkrpc.NVMfController); ok && err == nil {
		for _, h := range c.Hosts {
			*list = append(*list, spdkrpc.NVMfController{Hostnqn: h})
		}
	}
	return err
}

// AmbiguousQueries responds to every query for one subsystem with the error for wrong parameters.
// SPDK returns this error for a subsystem that does not exist, but possibly for other reasons too.
type AmbiguousQueries struct{ spdkrpc.Caller }

// Call implements [spdkrpc.Caller].
func (q AmbiguousQueries) Call(ctx context.Context, method string, params, result any) error {
	if method == "nvmf_get_subsystems" && params != nil {
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.InvalidParams, Code: -32602, Message: "Invalid parameters"}
	}
	return q.Caller.Call(ctx, method, params, result)
}
