package rpcschema

// SPDK accepts a call without parameters in one of these forms (x-spdk-params).
const (
	ParamsNone   = "none"   // params must be omitted
	ParamsObject = "object" // params must be an empty object
	ParamsEither = "either"
)

// WithoutParams returns the form that SPDK accepts for a call of m without parameters.
func (m *Method) WithoutParams() string {
	switch {
	case m.ParamsForm != "":
		return m.ParamsForm
	case len(m.Params) == 0 && m.ServedBy == "":
		return ParamsNone
	}
	return ParamsEither
}

// Bare returns the parameters of a call in the form that SPDK accepts. If there are none, Bare
// returns nil or an empty object; otherwise, it returns params unchanged.
func (m *Method) Bare(params map[string]any) map[string]any {
	switch {
	case len(params) > 0:
		return params
	case m.WithoutParams() == ParamsObject:
		return map[string]any{}
	}
	return nil
}

// checkBare checks that a call without parameters has the form that SPDK accepts.
func (m *Method) checkBare(params map[string]any) Violations {
	switch form := m.WithoutParams(); {
	case len(params) > 0:
	case form == ParamsNone && params != nil:
		return Violations{{Message: m.Name + " refuses an empty object as params: leave params out"}}
	case form == ParamsObject && params == nil:
		return Violations{{Message: m.Name + " requires params: give an empty object, {}"}}
	}
	return nil
}
