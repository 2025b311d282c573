package rpcschema

// Fit adapts a call to release r if nothing is lost: the parameters as [Method.Translate] does, and
// name, which may be deprecated, to the method's present name. done lists the translations in
// order. If translate is false, an old name is refused as an [UnknownMethodError], and the
// parameters stay unchanged.
func (m *Method) Fit(name string, params map[string]any, r Release, translate bool) (fitted map[string]any, done []Translation, err error) {
	renamed := name != m.Name
	if !translate {
		if renamed {
			return nil, nil, &UnknownMethodError{Method: name, Now: m.Name}
		}
		return m.Bare(params), nil, nil
	}
	fitted, done, err = m.Translate(params, r)
	if renamed {
		done = append([]Translation{{From: name, To: m.Name}}, done...)
	}
	return fitted, done, err
}
