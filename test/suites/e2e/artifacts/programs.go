package artifacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Programs maps the names of built programs to their paths.
type Programs map[string]string

// A tool is a program listed as a tool in a module's go.mod.
type tool struct{ name, pkg, version string }

// Tools builds the tools of the module in a directory, which must contain its own go.mod and
// go.sum. parallel is the maximum number of concurrent compilers.
func (s *Store) Tools(ctx context.Context, module string, parallel int) (Programs, error) {
	var parts [][]byte
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return nil, err
		}
		parts = append(parts, text)
	}
	dir, err := s.directory("programs", parts...)
	if err != nil {
		return nil, err
	}
	tools, err := toolsOf(ctx, module)
	if err != nil {
		return nil, err
	}
	programs := Programs{}
	for i, t := range tools {
		program := filepath.Join(dir, t.name)
		programs[t.name] = program
		if _, err := os.Stat(program); err == nil {
			continue
		}
		s.log("building %s %s (%d of %d)", t.name, t.version, i+1, len(tools))
		start := time.Now()
		if err := build(ctx, module, t.pkg, t.flags(), parallel, program); err != nil {
			return nil, err
		}
		s.log("built %s in %.0f s", t.name, time.Since(start).Seconds())
	}
	return programs, nil
}

// Own builds programs from the module in a directory. It always runs the go command, whose cache
// makes this fast.
func (s *Store) Own(ctx context.Context, module, version string, packages ...string) (Programs, error) {
	dir := filepath.Join(s.root, "own")
	programs := Programs{}
	for _, pkg := range packages {
		name := path.Base(pkg)
		programs[name] = filepath.Join(dir, name)
		if err := build(ctx, module, pkg, "-s -w -X main.version="+version, 2, programs[name]); err != nil {
			return nil, err
		}
	}
	return programs, nil
}

// build creates the program's file only once the program is complete.
func build(ctx context.Context, module, pkg, ldflags string, parallel int, program string) error {
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return err
	}
	making := program + ".making"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-p", fmt.Sprint(parallel), "-ldflags", ldflags, "-o", making, pkg)
	cmd.Dir = module
	cmd.Env = append([]string{"GOGC=400"}, os.Environ()...) // the compiler is faster with more memory
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, out[max(0, len(out)-2000):])
	}
	return os.Rename(making, program)
}

// toolsOf returns the tools that go.mod lists.
func toolsOf(ctx context.Context, module string) ([]tool, error) {
	out, err := list(ctx, module, "-f", "{{.ImportPath}} {{.Module.Version}}", "tool")
	if err != nil {
		return nil, err
	}
	var tools []tool
	for line := range strings.Lines(out) {
		pkg, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		tools = append(tools, tool{programOf(pkg), pkg, version})
	}
	if len(tools) == 0 {
		return nil, fmt.Errorf("%s lists no tools", filepath.Join(module, "go.mod"))
	}
	return tools, nil
}

var major = regexp.MustCompile(`/v[0-9]+$`)

// programOf returns the name that the go command gives to a package's program, or "etcd" for etcd's
// server.
func programOf(pkg string) string {
	if strings.HasPrefix(pkg, "go.etcd.io/etcd/server") {
		return "etcd"
	}
	return path.Base(major.ReplaceAllString(pkg, ""))
}

// flags returns the linker flags that set the version where Kubernetes' programs and the sidecars
// look for it.
func (t tool) flags() string {
	flags := "-s -w -X main.version=" + t.version
	if !strings.HasPrefix(t.pkg, "k8s.io/kubernetes/") {
		return flags
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(t.version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	for name, value := range map[string]string{"gitVersion": t.version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"} {
		flags += fmt.Sprintf(" -X k8s.io/component-base/version.%s=%s", name, value)
	}
	return flags + " -X k8s.io/client-go/pkg/version.gitVersion=" + t.version
}

// ModuleDir returns the source directory of the module whose path is required. The module in the
// directory module must depend on it.
func ModuleDir(ctx context.Context, module, required string) (string, error) {
	if _, err := list(ctx, module, "-m", required); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", required)
	cmd.Dir = module
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("download %s: %w: %s", required, err, out)
	}
	out, err := list(ctx, module, "-m", "-f", "{{.Dir}}", required)
	dir := strings.TrimSpace(out)
	if err == nil && dir == "" {
		err = fmt.Errorf("%s is not in the module cache", required)
	}
	return dir, err
}

func list(ctx context.Context, module string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-mod=readonly"}, args...)...)
	cmd.Dir = module
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = errors.Join(fmt.Errorf("go list %s: %w", strings.Join(args, " "), err), errors.New(stderr.String()))
	}
	return string(out), err
}
