package rpcschema

// FastAndSlow reports, for external tests, whether the acceptor (fast) and the validator (slow)
// accept the parameters.
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
