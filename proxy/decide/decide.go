package decide

import (
	"errors"

	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// These errors mean that the policy does not allow a call.
var (
	ErrDenied = errors.New("denied by policy")
	// ErrDeniedParams means that the method is allowed, but not with these parameters.
	ErrDeniedParams = errors.New("denied by policy with these parameters")
)

// Stages contains the stages that decide about calls. It is safe for concurrent use.
type Stages struct {
	Schema    *rpcschema.Document
	Policy    *policy.Policy
	Translate bool // translate the calls of old clients; see rpcschema.Method.Fit
}

// A Call is a call on its way through the stages.
type Call struct {
	Method       *rpcschema.Method
	Decision     policy.Decision
	Translations []rpcschema.Translation
	Params       map[string]any // parameters as the target's release expects them

	stages Stages
	name   string // the method's name as the client wrote it
}

// Method is the first step: it looks up the method, and decides whether the user may call it. The
// error is an *rpcschema.UnknownMethodError or ErrDenied. Along with ErrDenied, Method returns the
// call.
func (s Stages) Method(user, name string) (*Call, error) {
	method, err := s.Schema.Find(name, rpcschema.Release{})
	if err != nil {
		return nil, err
	}
	c := &Call{Method: method, Decision: s.Policy.Decide(user, method.Name), stages: s, name: name}
	if c.Decision.Refused() {
		return c, ErrDenied
	}
	return c, nil
}

// Accept is the second step: it adapts the parameters to a release of SPDK, validates them, and
// decides whether the user may call the method with them. The error is an rpcschema.Violations or
// another error about the parameters, or ErrDeniedParams. Accept sets Decision only if the
// parameters are valid.
func (c *Call) Accept(params map[string]any, release rpcschema.Release) (err error) {
	c.Params, c.Translations, err = c.Method.Fit(c.name, params, release, c.stages.Translate)
	if err != nil {
		return err
	}
	if err := c.stages.Schema.ValidateParams(c.Method.Name, c.Params, release); err != nil {
		return err
	}
	if err := checkNewNames(c.stages.Schema, c.Method.Name, c.Params); err != nil {
		return err
	}
	if c.Decision = c.Decision.WithParams(c.Params); !c.Decision.Allowed {
		return ErrDeniedParams
	}
	return nil
}
