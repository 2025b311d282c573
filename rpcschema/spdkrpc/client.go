package spdkrpc

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A Caller sends one call to an SPDK target and waits for its response.
//
// params is nil or a value that marshals to a JSON object. result is a pointer into which the
// result is decoded, or nil to ignore the result. Every error is an *[Error]. The context's
// deadline limits the wait. A Caller is safe for concurrent use.
type Caller interface {
	Call(ctx context.Context, method string, params, result any) error
}

// A Client calls SPDK's RPCs through typed methods. It is safe for concurrent use.
type Client struct {
	caller  Caller
	trusts  bool // send parameters without validation
	release atomic.Pointer[rpcschema.Release]
}

// A ClientOption configures a Client.
type ClientOption func(*Client)

// WithoutValidation disables validation, so that the client also sends parameters that the schema
// does not allow. SPDK may accept them, and then crash or behave unexpectedly.
func WithoutValidation() ClientOption { return func(c *Client) { c.trusts = true } }

// NewClient returns a Client that uses a Caller. If the schema does not allow a call's parameters,
// the client returns InvalidParams without sending anything. The client requests the target's
// release when a call first depends on it.
func NewClient(caller Caller, options ...ClientOption) *Client {
	c := &Client{caller: caller}
	for _, option := range options {
		option(c)
	}
	return c
}

// Release returns the target's release. The client requests it once, and again after a call has
// failed with an error that a different release would explain.
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

// call makes one call with parameters adapted to the target's release.
func (c *Client) call(ctx context.Context, method string, params, result any) error {
	fitted, err := c.fit(ctx, method, params)
	if err != nil {
		return err
	}
	err = c.caller.Call(ctx, method, fitted, result)
	if explains(method, KindOf(err)) {
		c.release.Store(nil)
	}
	return err
}

// explains reports whether an error could mean that the target is no longer running the known
// release. A target that did not respond may have been restarted. Errors of methods that the proxy
// itself serves depend on the proxy's configuration, not on the release. If the method's parameters
// are the same in all releases, InvalidParams has another cause. For example, nvmf_get_subsystems
// has returned it since v26.09 if the subsystem does not exist.
func explains(method string, kind Kind) bool {
	switch kind {
	case Unreachable, OutcomeUnknown:
		return true
	case MethodNotFound, InvalidParams:
		m, err := rpcschema.Default().Find(method, rpcschema.Release{})
		return err != nil || m.ServedBy == "" && (kind == MethodNotFound || m.Varies())
	}
	return false
}

// confirm makes a call whose result is true on success.
func (c *Client) confirm(ctx context.Context, method string, params any) error {
	var ok bool
	if err := c.call(ctx, method, params, &ok); err != nil {
		return err
	}
	if !ok {
		return &Error{Method: method, Kind: Failed, Message: "SPDK returned false"}
	}
	return nil
}

// fit adapts params to the target's release.
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
			return nil, fmt.Errorf("query the target's release: %w", err)
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
	if err := c.validate(m, fitted, release); err != nil {
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

// unsent returns the error for a call whose parameters were refused before anything was sent. The
// code is the one that the proxy and SPDK use.
func unsent(method string, err error) error {
	return &Error{Method: method, Kind: InvalidParams, Code: jsonrpc.CodeInvalidParams, Message: "not sent", Err: err}
}

// validate checks parameters against the schema of the release. Even if validation is disabled, it
// refuses parameters that the release does not support.
func (c *Client) validate(m *rpcschema.Method, params map[string]any, r rpcschema.Release) error {
	if c.trusts {
		return m.Knows(params, r)
	}
	return rpcschema.Default().ValidateParams(m.Name, params, r)
}
