package proxy

import (
	"context"
	"encoding/json"

	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// statusMethod returns the state of the saved configuration. It does not call the target,
// because it is needed most while the target is unreachable.
const statusMethod = "spdkgate_config_get_status"

// answerStatus answers statusMethod, which policy has allowed unless its parameters decide.
func (s *Server) answerStatus(ctx context.Context, now *settings, c *call, method *rpcschema.Method, decision policy.Decision) (json.RawMessage, error) {
	user, params := c.in.sender.user, c.asked.request.Params
	decision, err := s.decideParams(c, decision, method, params, rpcschema.Release{})
	if err != nil {
		return nil, err
	}
	scope := now.tenancy.Of(user)
	unreachable := func(context.Context, string, map[string]any) (json.RawMessage, error) {
		return nil, &target.DownError{Socket: s.config.Target.Socket, Err: s.target.State().Err}
	}
	grant, err := scope.Admit(ctx, method, params, unreachable)
	c.noteAdmission(scope, grant, err)
	if err != nil {
		return nil, err
	}
	defer grant.Close()
	if !s.offers(method) {
		return nil, &notOfferedError{method.Name, ownMethods[method.Name].key}
	}
	give, err := s.target.AcquireSlot(ctx, user)
	if err != nil {
		return nil, err
	}
	defer give()
	result, err := ownMethods[method.Name].serve(s, ctx, unreachable, command{user: user, method: method, params: grant.Params})
	result, err = grant.Answer(ctx, result, err)
	if err == nil && decision.Redact {
		return s.schema.RedactResult(method.Name, result)
	}
	return result, err
}
