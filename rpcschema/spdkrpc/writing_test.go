package spdkrpc

// isWriting reports whether a write is in progress. If a stream ends during a write, it sends no
// close frame.
func (s *stream) isWriting() (writing bool) {
	s.update(func(f *inFlight) { writing = f.writing })
	return writing
}
