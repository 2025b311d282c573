package rpcschema

// FastAndSlow tells, for the tests outside, what the acceptor and what the
// validator says to the same parameters.
func (d *Document) FastAndSlow(method string, params map[string]any, r Release) (fast, slow bool) {
	c, err := d.compilerFor(r)
	if err != nil {
		panic(err)
	}
	s, err := c.compiled(r, "params", method)
	if err != nil {
		panic(err)
	}
	violations, err := check(s, params)
	if err != nil {
		panic(err)
	}
	a := c.acceptor(method)
	return a != nil && a.accepts(params), len(violations) == 0
}
