package jsonrpc

// A Splitter finds the end of a message in a stream of messages without separators, as on SPDK's
// socket. It finds the bracket that closes the first message, and checks nothing else:
// [DecodeMessage] decides whether the text is a message. The zero value is ready to use.
type Splitter struct {
	scanned  int // number of bytes of the text that have been examined so far
	depth    int
	inString bool
	escaped  bool
}

// Next returns the length of the message at the beginning of text. The Splitter is then ready for
// the next message. If the message is incomplete, Next returns 0, and the caller must call it again
// with the same text and more bytes. The error is an *Error if text does not begin with an object
// or an array.
func (s *Splitter) Next(text []byte) (int, error) {
	if len(text) > 0 && text[0] != '{' && text[0] != '[' {
		return 0, Errorf(CodeInvalidRequest, "a request must be a JSON object, or a batch of objects in [ ]")
	}
	for i := s.scanned; i < len(text); i++ {
		switch b := text[i]; {
		case s.escaped:
			s.escaped = false
		case s.inString:
			s.escaped, s.inString = b == '\\', b != '"'
		case b == '"':
			s.inString = true
		case b == '{' || b == '[':
			s.depth++
		case b == '}' || b == ']':
			if s.depth--; s.depth == 0 {
				*s = Splitter{}
				return i + 1, nil
			}
		}
	}
	s.scanned = len(text)
	return 0, nil
}

// TrimSpace returns text without the white space before its first value.
func TrimSpace(text []byte) []byte {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\n' || text[0] == '\r' || text[0] == '\t') {
		text = text[1:]
	}
	return text
}
