package spdkrpc

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A Caller sends one call to an SPDK target and waits for its answer.
//
// params is nil or marshals to a JSON object; result is nil, to drop the
// result, or a pointer to decode it into. Every error is an *[Error]. The
// context's deadline bounds the wait. A Caller may be used concurrently.
type Caller interface {
	Call(ctx context.Context, method string, params, result any) error
}

// A Client calls SPDK's RPCs by typed methods. It may be used concurrently.
type Client struct {
	caller  Caller
	trusts  bool // parameters are sent as they are given
	release atomic.Pointer[rpcschema.Release]
}

// A ClientOption changes what a Client does.
type ClientOption func(*Client)

// WithoutValidation has parameters sent that the schema knows to be wrong. SPDK
// takes some of them, and ends or makes something else of it.
func WithoutValidation() ClientOption { return func(c *Client) { c.trusts = true } }

// NewClient makes a Client of a Caller. Parameters that the schema does not take
// are refused with InvalidParams before anything is sent. The target's release
// is asked for when a request first depends on it.
func NewClient(caller Caller, options ...ClientOption) *Client {
	c := &Client{caller: caller}
	for _, option := range options {
		option(c)
	}
	return c
}

// Release is the target's release, as it was when it was last asked. After a
// call that failed in a way that another release would explain, it is asked
// anew.
func (c *Client) Release(ctx context.Context) (rpcschema.Release, error) {
	if r := c.release.Load(); r != nil {
		return *r, nil
	}
	const method = "spdk_get_version"
	var v struct {
		Version string `json:"version"`
	}
	if err := c.caller.Call(ctx, method, nil, &v); err != nil {
		return rpcschema.Release{}, err
	}
	r, err := rpcschema.ParseRelease(v.Version)
	if err != nil {
		return r, &Error{Method: method, Kind: Failed, Err: err}
	}
	c.release.Store(&r)
	return r, nil
}

// call makes one call with parameters fitted to the target's release.
func (c *Client) call(ctx context.Context, method string, params, result any) error {
	fitted, err := c.fit(ctx, method, params)
	if err != nil {
		return err
	}
	err = c.caller.Call(ctx, method, fitted, result)
	switch KindOf(err) {
	case Unreachable, OutcomeUnknown, MethodNotFound, InvalidParams:
		c.release.Store(nil) // perhaps the target was replaced by another release
	}
	return err
}

// confirm makes a call whose result is true on success.
func (c *Client) confirm(ctx context.Context, method string, params any) error {
	var ok bool
	if err := c.call(ctx, method, params, &ok); err != nil {
		return err
	}
	if !ok {
		return &Error{Method: method, Kind: Failed, Message: "SPDK answered false"}
	}
	return nil
}

// fit writes params as the target's release has them.
func (c *Client) fit(ctx context.Context, method string, params any) (any, error) {
	if params == nil {
		return nil, nil
	}
	text, err := jsonrpc.Marshal(params)
	if err != nil {
		return nil, &Error{Method: method, Kind: InvalidParams, Err: err}
	}
	m, err := rpcschema.Default().Find(method, rpcschema.Release{})
	if err != nil {
		return nil, &Error{Method: method, Kind: MethodNotFound, Err: err}
	}
	varies := m.Varies()
	if !varies && c.trusts && string(text) != "{}" {
		return json.RawMessage(text), nil
	}
	var release rpcschema.Release
	if varies {
		if release, err = c.Release(ctx); err != nil {
			return nil, fmt.Errorf("ask the target's release: %w", err)
		}
	}
	value, err := jsonrpc.DecodeValue(text, jsonrpc.Limits{})
	if err != nil {
		return nil, unsent(method, err)
	}
	fitted, _, err := m.Translate(value.(map[string]any), release)
	if err != nil {
		return nil, unsent(method, err)
	}
	if err := c.judge(m, fitted, release); err != nil {
		return nil, unsent(method, err)
	}
	switch {
	case fitted == nil:
		return nil, nil
	case !varies:
		return json.RawMessage(text), nil
	}
	return fitted, nil
}

// unsent is the refusal of parameters before anything was sent, with the code of
// who refuses such in SPDK's stead.
func unsent(method string, err error) error {
	return &Error{Method: method, Kind: InvalidParams, Code: jsonrpc.CodeInvalidParams, Message: "not sent", Err: err}
}

// judge holds parameters against the schema as the release has it. What the
// release does not know is refused even without validation.
func (c *Client) judge(m *rpcschema.Method, params map[string]any, r rpcschema.Release) error {
	if c.trusts {
		return m.Knows(params, r)
	}
	return rpcschema.Default().ValidateParams(m.Name, params, r)
}
