package rpcschema

import "slices"

// invalidParams is JSON-RPC's code for invalid parameters.
const invalidParams = -32602

// Relaxed gives the releases that ignore unknown parameters of a method.
type Relaxed struct {
	Since Release `json:"since"`
	Until Release `json:"until"` // zero: the newest still does
}

// IgnoresUnknown reports whether release r ignores parameters that m does not have. ValidateParams
// refuses them for every release.
func (m *Method) IgnoresUnknown(r Release) bool {
	return m.Relaxed != nil && Window{Since: m.Relaxed.Since, Until: m.Relaxed.Until}.Has(r)
}

// DecoderRequires reports whether release r fails to decode a call without a parameter. It differs
// from RequiredAt where a release decodes such a call, and then refuses it with another error.
func (m *Method) DecoderRequires(name string, r Release) bool {
	return m.RequiredAt(name, r) && !r.Before(m.Param(name).Schema.RequiredSince)
}

// DecoderRequires reports whether release r fails to decode an object without a member.
func (s *Schema) DecoderRequires(name string, r Release) bool {
	member := s.Properties.Get(name)
	return slices.Contains(s.Required, name) && member.Has(r) && !r.Before(member.RequiredSince)
}
