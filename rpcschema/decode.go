package rpcschema

import "slices"

const invalidParams = -32602

// Relaxed gives the range of releases that ignore unknown parameters of a method.
type Relaxed struct {
	Since Release `json:"since"`
	Until Release `json:"until"` // zero if the newest release still ignores them
}

// IgnoresUnknown reports whether release r ignores parameters that m does not define.
// ValidateParams rejects unknown parameters for every release.
func (m *Method) IgnoresUnknown(r Release) bool {
	return m.Relaxed != nil && Window{Since: m.Relaxed.Since, Until: m.Relaxed.Until}.Has(r)
}

// DecoderRequires reports whether release r fails to decode a call without the parameter. The
// result differs from that of RequiredAt if a release decodes such a call but then refuses it with
// another error.
func (m *Method) DecoderRequires(name string, r Release) bool {
	return m.RequiredAt(name, r) && !r.Before(m.Param(name).Schema.RequiredSince)
}

// DecoderRequires reports whether release r fails to decode an object without the member.
func (s *Schema) DecoderRequires(name string, r Release) bool {
	member := s.Properties.Get(name)
	return slices.Contains(s.Required, name) && member.Has(r) && !r.Before(member.RequiredSince)
}
