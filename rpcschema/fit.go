package rpcschema

// Fit adapts a call to release r without loss. It adapts the parameters as [Method.Translate] does,
// and replaces a deprecated name with the method's current name. done lists the translations in
// order. If translate is false, Fit returns an [UnknownMethodError] for an old name, and leaves the
// parameters unchanged.
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
