package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// compile builds a program with goVersion, which is the Go version pinned in packages.lock. The
// result does not depend on the host, and is identical to a build with the Dockerfiles.
func compile(ctx context.Context, program, arch, goVersion, version, out string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w -X main.version="+version, "-o", out, "./cmd/"+program)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "GO") || name == "GOPATH" || name == "GOCACHE" || name == "GOMODCACHE" || name == "GOPROXY" || name == "GOSUMDB" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOTOOLCHAIN="+goVersion)
	if log, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build for %s: %w: %s", arch, err, log)
	}
	return nil
}
