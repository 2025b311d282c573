package cluster

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

const containerdRoot = "/var/lib/containerd"

// installImages starts the first node's containerd, imports the images, and copies the result to
// all other nodes. Importing them on each node would take longer.
func (c *Cluster) installImages(ctx context.Context) error {
	if len(c.Nodes) == 0 {
		return nil
	}
	first := c.Nodes[0]
	if err := first.boot(ctx); err != nil {
		return err
	}
	for _, image := range c.options.Images {
		if err := first.ctr(ctx, "images", "import", image); err != nil {
			return err
		}
	}
	// A database that is copied while containerd is running may be inconsistent.
	if err := first.containerd.Kill(); err != nil {
		return err
	}
	for _, n := range c.Nodes[1:] {
		if err := copyImages(ctx, first.path(containerdRoot), n.path(containerdRoot)); err != nil {
			return fmt.Errorf("copy the images to %s: %w", n.Name, err)
		}
	}
	c.options.Log("%d images are installed", len(c.options.Images))
	return first.startContainerd(ctx)
}

// copyImages copies the directory of a containerd that is not running. Only the databases are
// actually copied. Layers never change, so the copy contains links to their files.
func copyImages(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", "--archive", "--link", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".db" {
			return err
		}
		relative, err := filepath.Rel(to, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(from, relative))
		if err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.WriteFile(path, text, 0o600)
	})
}
