package tenancy

// Standing describes whether the tenant's users may call a method, and what the call may affect.
// The description does not depend on the parameters.
func (s *Scope) Standing(method string) string {
	p := s.tenancy.plans.Of(method)
	switch {
	case p.Refusal != "":
		return "refused: " + p.Refusal
	case p.Open:
		return "allowed: it names nothing and changes nothing"
	case p.Lists:
		return "allowed: its result has only the tenant's objects"
	}
	return "allowed for the tenant's objects: their owner and the quota are checked only when the call is made"
}
