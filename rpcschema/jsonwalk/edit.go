package jsonwalk

// An Edit copies JSON text from beginning to end, omitting or replacing parts of it. If nothing is
// changed, nothing is copied.
type Edit struct {
	Text
	out    []byte // copy of the edited text up to offset done
	done   int
	expect int
}

// NewEdit starts an edit of JSON text.
func NewEdit(text string) Edit { return Edit{Text: Text{S: text}} }

// Expect sets the expected length of the copy in order to avoid repeated reallocation.
func (e *Edit) Expect(length int) { e.expect = length }

// Cut omits the text between two offsets. Changes must be made in ascending order of offsets.
func (e *Edit) Cut(from, to int) {
	if e.out == nil && e.expect > 0 {
		e.out = make([]byte, 0, e.expect)
	}
	e.out = append(e.out, e.S[e.done:from]...)
	e.done = to
}

// Replace replaces the text between two offsets.
func (e *Edit) Replace(from, to int, with string) {
	e.Cut(from, to)
	e.out = append(e.out, with...)
}

// Kept returns the edited text. If nothing was changed, it returns whole.
func (e *Edit) Kept(whole []byte) []byte {
	if e.done == 0 {
		return whole
	}
	return append(e.out, e.S[e.done:]...)
}

// Content starts an edit of the object or array whose opening bracket ends at end.
func (e *Edit) Content(end int) Content { return Content{Edit: e, End: end} }

// A Content edits one object or array. If a member is omitted, so is its separator.
type Content struct {
	*Edit
	End  int  // end of the last member that was kept, or of the opening bracket
	Gap  bool // members were omitted after End
	some bool // at least one member was kept
}

// Keep keeps the member that begins at i. The caller must then set End to the end of the member.
func (c *Content) Keep(i int) {
	if c.Gap {
		c.Cut(c.End, i)
		if c.some {
			c.out = append(c.out, ',')
		}
	}
	c.some, c.Gap = true, false
}

// Close ends the edit at the closing bracket, at i.
func (c *Content) Close(i int) {
	if c.Gap {
		c.Cut(c.End, i)
	}
}
