package spdktest

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A trimmer removes the members that a release does not write from a value, so that the engine
// needs only one version of a result for all releases. A nil trimmer removes nothing.
type trimmer struct {
	gone    map[string]bool     // names of the members that the release does not write
	members map[string]*trimmer // trimmers for members that the release writes
	rest    *trimmer            // trimmer for members not in the schema
	items   *trimmer
}

func newTrimmer(doc *rpcschema.Document, s *rpcschema.Schema, r rpcschema.Release, above ...*rpcschema.Schema) *trimmer {
	s = doc.Resolve(s)
	if s == nil || slices.Contains(above, s) {
		return nil
	}
	above = append(slices.Clone(above), s)
	t := &trimmer{
		gone: map[string]bool{}, members: map[string]*trimmer{},
		rest: newTrimmer(doc, s.Additional.Schema, r, above...), items: newTrimmer(doc, s.Items, r, above...),
	}
	useful := t.rest != nil || t.items != nil
	for _, p := range s.Properties {
		if !p.Has(r) {
			t.gone[p.Name], useful = true, true
			continue
		}
		t.members[p.Name] = newTrimmer(doc, p.Schema, r, above...)
		useful = useful || t.members[p.Name] != nil
	}
	if !useful {
		return nil
	}
	return t
}

// trim removes members from a JSON text.
func (t *trimmer) trim(text []byte) ([]byte, error) {
	if t == nil {
		return text, nil
	}
	var out bytes.Buffer
	out.Grow(len(text))
	dec := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true))
	if err := t.copy(jsontext.NewEncoder(&out, jsontext.AllowDuplicateNames(true)), dec); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func (t *trimmer) copy(enc *jsontext.Encoder, dec *jsontext.Decoder) error {
	kind := dec.PeekKind()
	if t == nil || kind != '{' && kind != '[' {
		v, err := dec.ReadValue()
		if err != nil {
			return err
		}
		return enc.WriteValue(v)
	}
	if err := copyToken(enc, dec); err != nil {
		return err
	}
	for dec.PeekKind() != '}' && dec.PeekKind() != ']' {
		member := t.items
		if kind == '{' {
			name, err := dec.ReadToken()
			if err != nil {
				return err
			}
			text := name.String()
			if t.gone[text] {
				if err := dec.SkipValue(); err != nil {
					return err
				}
				continue
			}
			if err := enc.WriteToken(jsontext.String(text)); err != nil {
				return err
			}
			known := false
			if member, known = t.members[text]; !known {
				member = t.rest
			}
		}
		if err := member.copy(enc, dec); err != nil {
			return err
		}
	}
	return copyToken(enc, dec)
}

func copyToken(enc *jsontext.Encoder, dec *jsontext.Decoder) error {
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	return enc.WriteToken(token)
}
