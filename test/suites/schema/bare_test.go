package schema

import (
	"context"
	"slices"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// onceOnly lists methods that respond differently to a second call.
var onceOnly = []string{"iscsi_set_options"}

// takenSince lists methods that refuse an empty object on older releases, with a release that has
// been observed to accept it.
var takenSince = map[string]rpcschema.Release{"framework_monitor_context_switch": v2605}

// notWithoutParams lists methods that are not called without parameters, because such a call would
// end the target, change its state, or never receive a response.
var notWithoutParams = []string{"spdk_kill_instance", "framework_start_init", "framework_wait_init"}

// withoutParams calls every method that does not require parameters, once without params and once
// with an empty object. It checks that the target accepts or refuses each call as the schema
// states.
func (b *bench) withoutParams() {
	tried := 0
	for _, m := range b.methods() {
		if slices.Contains(notWithoutParams, m.Name) || b.needsParams(m) {
			continue
		}
		tried++
		object, none := b.exactly(m.Name, map[string]any{}), b.exactly(m.Name, nil)
		switch m.WithoutParams() {
		case rpcschema.ParamsNone:
			if since, taken := takenSince[m.Name]; taken && !b.release.Before(since) {
				continue // omitting params is harmless
			}
			assert.Error(b, object, "%s accepts {}", m.Name)
			assert.False(b, same(object, none), "%s: both are refused alike: %v", m.Name, none)
		case rpcschema.ParamsObject:
			assert.Error(b, none, "%s accepts a call without params", m.Name)
			assert.False(b, same(object, none), "%s: both are refused alike: %v", m.Name, none)
		default:
			if !slices.Contains(onceOnly, m.Name) {
				assert.True(b, object == nil && none == nil || same(object, none), "%s responds differently to {} (%v) and to no params (%v)", m.Name, object, none)
			}
		}
		b.alive(m.Name)
	}
	b.Logf("%d methods called without params and with {}", tried)
}

func (b *bench) needsParams(m *rpcschema.Method) bool {
	return len(m.OneOf)+len(m.AnyOf) > 0 || slices.ContainsFunc(m.Params, func(p *rpcschema.Param) bool { return m.RequiredAt(p.Name, b.release) })
}

// exactly makes a call with exactly the given params.
func (b *bench) exactly(method string, params map[string]any) error {
	ctx, cancel := context.WithTimeout(b.Context(), answerWithin)
	defer cancel()
	if params == nil {
		return b.caller.Call(ctx, method, nil, nil)
	}
	return b.caller.Call(ctx, method, params, nil)
}
