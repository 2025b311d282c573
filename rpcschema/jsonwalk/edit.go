package jsonwalk

// An Edit copies a text with parts left out or replaced, from its beginning to its
// end. Without any, nothing is copied.
type Edit struct {
	Text
	out    []byte // the copy of the text up to done
	done   int
	expect int
}

// NewEdit begins to edit a text.
func NewEdit(text string) Edit { return Edit{Text: Text{S: text}} }

// Expect says how long the copy will be, if there is one: otherwise its memory is
// doubled again and again.
func (e *Edit) Expect(length int) { e.expect = length }

// Cut leaves out what stands between two places, behind all that was left out before.
func (e *Edit) Cut(from, to int) {
	if e.out == nil && e.expect > 0 {
		e.out = make([]byte, 0, e.expect)
	}
	e.out = append(e.out, e.S[e.done:from]...)
	e.done = to
}

// Replace puts a text in the place of what stands between two places.
func (e *Edit) Replace(from, to int, with string) {
	e.Cut(from, to)
	e.out = append(e.out, with...)
}

// Kept is what is left of the whole, which is returned itself if that is all.
func (e *Edit) Kept(whole []byte) []byte {
	if e.done == 0 {
		return whole
	}
	return append(e.out, e.S[e.done:]...)
}

// Content begins to edit the object or array whose opening bracket ends there.
func (e *Edit) Content(end int) Content { return Content{Edit: e, End: end} }

// A Content is what is kept of an object or array: what stands between two members
// that are kept goes with those that are not.
type Content struct {
	*Edit
	End  int  // of the last member that was kept, or of the opening bracket
	Gap  bool // members were left out since
	some bool // were kept
}

// Keep keeps the member that begins at i. End must be set to where it ends.
func (c *Content) Keep(i int) {
	if c.Gap {
		c.Cut(c.End, i)
		if c.some {
			c.out = append(c.out, ',')
		}
	}
	c.some, c.Gap = true, false
}

// Close closes the whole at its bracket.
func (c *Content) Close(i int) {
	if c.Gap {
		c.Cut(c.End, i)
	}
}
