package tenancy

// Standing says in words what a method is to the tenant's users, whatever its
// parameters are.
func (s *Scope) Standing(method string) string {
	plan := s.tenancy.plans[method]
	switch {
	case plan.refusal != "":
		return "refused: " + plan.refusal
	case plan.open:
		return "open: it names nothing and changes nothing"
	case plan.lists:
		return "its result holds only what is theirs"
	}
	return "only about what is theirs"
}
