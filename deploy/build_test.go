package deploy

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const testVersion = "v1.2.3-test"

// builds maps each program to a function that builds it once for all tests, with its image's build
// command.
var builds = map[string]func() (string, error){}

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "deploy")
	if err != nil {
		panic(err)
	}
	for _, program := range programs {
		builds[program] = sync.OnceValues(func() (string, error) { return build(program, filepath.Join(folder, program)) })
	}
	for _, tool := range []string{"kustomize", "helm"} {
		builds[tool] = sync.OnceValues(func() (string, error) { return buildTool(tool) })
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// buildTool builds the tool in the module deploy/NAME, and returns the binary's path in the go
// command's cache. The first build takes minutes.
func buildTool(name string) (string, error) {
	cmd := exec.Command("go", "tool", "-modfile", "deploy/"+name+"/go.mod", "-n", name)
	cmd.Dir = repository
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd.Args, err, log.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// build runs the image's build command unchanged, except for the output path.
func build(program, out string) (string, error) {
	source, err := os.ReadFile("image/" + program + ".Dockerfile")
	if err != nil {
		return "", err
	}
	instructions, err := dockerfile(string(source))
	if err != nil {
		return "", err
	}
	args := map[string]string{}
	for _, in := range instructions {
		if name, value, ok := strings.Cut(in.rest, "="); in.name == "ARG" && ok {
			args[name] = value
		}
		if in.name == "RUN" && strings.Contains(in.rest, "go build") && strings.Contains(in.rest, "/out/"+program+" ") {
			args["VERSION"], args["TARGETARCH"] = testVersion, runtime.GOARCH
			command := os.Expand(in.rest, func(name string) string { return args[name] })
			cmd := exec.Command("sh", "-c", strings.Replace(command, "/out/"+program+" ", out+" ", 1))
			cmd.Dir = repository
			if log, err := cmd.CombinedOutput(); err != nil {
				return "", fmt.Errorf("%s: %w: %s", command, err, log)
			}
			return out, nil
		}
	}
	return "", fmt.Errorf("%s.Dockerfile has no go build", program)
}

func binary(t *testing.T, program string) string {
	t.Helper()
	path, err := builds[program]()
	require.NoError(t, err)
	return path
}

func TestImageBuildCommandSucceeds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			path := binary(t, program)
			f, err := elf.Open(path)
			require.NoError(t, err)
			defer f.Close()
			libraries, err := f.ImportedLibraries()
			require.NoError(t, err)
			assert.Empty(t, libraries, "the binary must be static")
			for _, p := range f.Progs {
				assert.NotEqual(t, elf.PT_INTERP, p.Type, "the binary must be static")
			}
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.True(t, bytes.Contains(content, []byte(testVersion)), "the binary does not contain the version")
		})
	}
}

// The commands that the images run must exist in the programs.
func TestImagesStartExistingCommands(t *testing.T) {
	for _, program := range programs {
		for _, in := range load(t, program) {
			if in.name != "CMD" {
				continue
			}
			var args []string
			require.NoError(t, json.Unmarshal([]byte(in.rest), &args), "line %d: no shell between the container and the program", in.line)
			out, err := exec.Command(binary(t, program), append(args, "--help")...).CombinedOutput()
			assert.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), program+" "+args[0])
		}
	}
}
