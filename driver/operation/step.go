package operation

import (
	"fmt"
	"sync/atomic"
)

// A Step reports what an operation is doing, for the error of a caller that stops waiting. It is
// safe for concurrent use.
type Step struct{ text atomic.Pointer[string] }

// Doing sets the text, such as "mkfs.ext4 /dev/nvme0n1".
func (s *Step) Doing(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.text.Store(&text)
}

func (s *Step) String() string {
	if text := s.text.Load(); text != nil {
		return *text
	}
	return "starting"
}
