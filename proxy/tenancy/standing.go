package tenancy

// Standing describes what the tenant's users may do with a method, whatever its parameters are.
func (s *Scope) Standing(method string) string {
	plan := s.tenancy.plans[method]
	switch {
	case plan.refusal != "":
		return "refused: " + plan.refusal
	case plan.open:
		return "allowed: it names nothing and changes nothing"
	case plan.lists:
		return "allowed: its result has only the tenant's objects"
	}
	return "allowed for the tenant's objects"
}
