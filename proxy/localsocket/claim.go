package localsocket

import (
	"crypto/sha256"
	"fmt"
	"net"
	"path/filepath"
)

// Claim reserves a path until the returned function is called or the process ends. It returns an
// error if another process in the same network namespace has reserved the path. Any program on the
// host can reserve a path, so the caller should only log a warning.
func Claim(program, path string) (release func(), err error) {
	if full, err := filepath.EvalSymlinks(path); err == nil {
		path = full
	}
	// Use an abstract socket, which leaves no file behind and needs no writable directory.
	l, err := net.Listen("unix", fmt.Sprintf("@%s-%x", program, sha256.Sum256([]byte(path))))
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", path, err)
	}
	return func() { _ = l.Close() }, nil
}
