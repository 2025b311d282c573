package localsocket

import (
	"crypto/sha256"
	"fmt"
	"net"
	"path/filepath"
)

// Claim claims a path until the returned function is called or the process ends. It fails while
// another process in the same network namespace has claimed that path. Any program on the host can
// do so, so a failure is a reason to warn, not to stop.
func Claim(program, path string) (release func(), err error) {
	if full, err := filepath.EvalSymlinks(path); err == nil {
		path = full
	}
	// An abstract socket leaves no file behind, and needs no writable directory.
	l, err := net.Listen("unix", fmt.Sprintf("@%s-%x", program, sha256.Sum256([]byte(path))))
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", path, err)
	}
	return func() { _ = l.Close() }, nil
}
