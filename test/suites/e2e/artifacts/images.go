package artifacts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Image builds a program's image for this machine with the repository's own builder, and returns
// the path of its archive. If Debian's mirror has replaced packages that the committed lock file
// names, the image contains the current versions.
func (s *Store) Image(ctx context.Context, repository, program, version string) (string, error) {
	dir := filepath.Join(s.root, "images", version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	args := []string{"-out", dir, "-version", version, "-revision", "e2e", "-programs", program, "-architectures", runtime.GOARCH}
	archive := filepath.Join(dir, program+".oci.tar")
	err := buildImage(ctx, repository, args...)
	if err == nil {
		return archive, nil
	}
	s.log("the image cannot be built with the committed lock file, so one with Debian's current packages is created: %v", err)
	current := filepath.Join(s.root, "images", "packages.lock")
	if updateErr := buildImage(ctx, repository, append(args, "-lock", current, "-update-lock")...); updateErr != nil {
		return "", errors.Join(err, updateErr)
	}
	return archive, buildImage(ctx, repository, append(args, "-lock", current)...)
}

func buildImage(ctx context.Context, repository string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"run", "./deploy/image"}, args...)...)
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("deploy/image %v: %w: %s", args, err, out)
	}
	return nil
}
