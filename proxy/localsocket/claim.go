package localsocket

import (
	"crypto/sha256"
	"fmt"
	"net"
	"path/filepath"
)

// Claim reserves a path until the returned function is called or the process ends. It returns an
// error if another process in the same network namespace has already reserved the path. The caller
// should only log a warning in that case, because any program on the host can reserve a path.
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
