package deploy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const repository = ".."

var programs = []string{"spdk-csi", "spdk-proxy"}

// instruction is one instruction in a Dockerfile, with its continuation lines joined.
type instruction struct {
	line       int
	name, rest string
}

var dockerfileInstructions = []string{"ARG", "FROM", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}

// dockerfile parses the instructions that our Dockerfiles use, and refuses all others. We do not
// use a complete parser, because all such parsers depend on a container engine's modules.
func dockerfile(source string) ([]instruction, error) {
	var found []instruction
	continued := false
	for i, line := range strings.Split(source, "\n") {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		more := strings.HasSuffix(text, `\`)
		text = strings.TrimSpace(strings.TrimSuffix(text, `\`))
		if continued {
			found[len(found)-1].rest += " " + text
		} else {
			name, rest, _ := strings.Cut(text, " ")
			if !slices.Contains(dockerfileInstructions, name) || rest == "" {
				return nil, fmt.Errorf("line %d: %q is not a known instruction", i+1, text)
			}
			found = append(found, instruction{i + 1, name, strings.TrimSpace(rest)})
		}
		continued = more
	}
	if continued {
		return nil, fmt.Errorf("the last line is continued")
	}
	return found, nil
}

// expand replaces ${NAME} with the default from ARG. A name without a default is an error.
func expand(t *testing.T, args map[string]string, s string) string {
	return os.Expand(s, func(name string) string {
		value, ok := args[name]
		assert.True(t, ok, "%s has no default: declare it with ARG in its stage", name)
		return value
	})
}

func load(t *testing.T, program string) []instruction {
	t.Helper()
	source, err := os.ReadFile("image/" + program + ".Dockerfile")
	require.NoError(t, err)
	found, err := dockerfile(string(source))
	require.NoError(t, err)
	return found
}

var imageTag = regexp.MustCompile(`^[a-z0-9.-]+\.[a-z]+/[a-z0-9./-]+:[a-z0-9.-]+$`)

func TestDockerfilesFollowConventions(t *testing.T) {
	for _, program := range programs {
		t.Run(program, func(t *testing.T) {
			global := map[string]string{"BUILDPLATFORM": "linux/amd64"} // set by the builder
			args, stages, final := global, []string{}, map[string]string{}
			for _, in := range load(t, program) {
				switch in.name {
				case "ARG":
					name, value, ok := strings.Cut(in.rest, "=")
					require.True(t, ok, "line %d: without a default, builds differ", in.line)
					args[name] = value
				case "FROM":
					fields := strings.Fields(strings.TrimPrefix(in.rest, "--platform=${BUILDPLATFORM} "))
					base := expand(t, global, fields[0])
					assert.Regexp(t, imageTag, base, "line %d: registry, name and tag", in.line)
					assert.NotContains(t, base, ":latest", "line %d", in.line)
					stages, args, final = append(stages, fields[len(fields)-1]), map[string]string{}, map[string]string{}
				case "COPY":
					testCopy(t, in, stages)
				default:
					final[in.name] = expand(t, args, in.rest)
				}
			}
			assert.Len(t, stages, 2, "one stage builds the program, the other becomes the image")
			assert.Equal(t, `["/usr/local/bin/`+program+`"]`, final["ENTRYPOINT"], "no shell between the container and the program")
			assert.Equal(t, "65532:65532", final["USER"], "not root, and a number: Kubernetes cannot check names")
			for _, label := range []string{"title", "description", "source", "licenses", "version", "revision"} {
				assert.Contains(t, final["LABEL"], "org.opencontainers.image."+label+"=")
			}
			assert.Contains(t, final["LABEL"], `licenses="Apache-2.0"`)
		})
	}
}

// testCopy checks that a copied file exists and that .dockerignore includes it in the build
// context.
func testCopy(t *testing.T, in instruction, stages []string) {
	fields := strings.Fields(in.rest)
	if from, ok := strings.CutPrefix(fields[0], "--from="); ok {
		assert.Contains(t, stages[:len(stages)-1], from, "line %d", in.line)
		return
	}
	for _, source := range fields[:len(fields)-1] {
		assert.FileExists(t, filepath.Join(repository, "go.mod"))
		_, err := os.Stat(filepath.Join(repository, source))
		assert.NoError(t, err, "line %d", in.line)
		assert.True(t, source == "." || sent(t, source), "line %d: .dockerignore keeps %s from the builder", in.line, source)
	}
}

// sent reports whether .dockerignore includes a path in the build context. The file begins with *
// and lists exceptions.
func sent(t *testing.T, path string) bool {
	source, err := os.ReadFile(filepath.Join(repository, ".dockerignore"))
	require.NoError(t, err)
	sent := true
	for line := range strings.Lines(string(source)) {
		pattern := strings.TrimSpace(line)
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		exception := strings.HasPrefix(pattern, "!")
		pattern = strings.TrimPrefix(pattern, "!")
		if deep, ok := strings.CutPrefix(pattern, "**/"); ok {
			matched := slices.ContainsFunc(strings.Split(path, "/"), func(e string) bool { ok, _ := filepath.Match(deep, e); return ok })
			if matched {
				sent = exception
			}
		} else if pattern == "*" || path == pattern || strings.HasPrefix(path, pattern+"/") {
			sent = exception
		}
	}
	return sent
}

// .dockerignore includes all source files of the programs in the build context, but no unrelated or
// secret files.
func TestBuildContextContainsOnlySource(t *testing.T) {
	for _, path := range []string{".git", "bin/spdk-csi", "secret.json", "deploy/kubernetes/secret.yaml", "server.key", "test/tools/demo/main.go", "driver/x_test.go", "rpcschema/testdata/x"} {
		assert.False(t, sent(t, path), path)
	}
	for _, program := range programs {
		list := exec.Command("go", "list", "-deps", "-f", `{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$d}}/{{.}}
{{end}}{{end}}{{end}}`, "./cmd/"+program)
		list.Dir = repository
		out, err := list.CombinedOutput()
		require.NoError(t, err, "%s", out)
		root, err := filepath.Abs(repository)
		require.NoError(t, err)
		files := strings.Fields(string(out))
		require.NotEmpty(t, files)
		for _, f := range files {
			path, err := filepath.Rel(root, f)
			require.NoError(t, err)
			assert.True(t, sent(t, path), "%s is built from %s, which .dockerignore keeps from the builder", program, path)
		}
	}
}

// packageOf maps the programs that the node service runs to their Debian packages.
var packageOf = map[string]string{
	"blkid": "util-linux", "nsenter": "util-linux",
	"mount": "mount", "umount": "mount",
	"modprobe":   "kmod",
	"cryptsetup": "cryptsetup-bin",
	"e2fsck":     "e2fsprogs", "mkfs.ext4": "e2fsprogs", "resize2fs": "e2fsprogs",
	"mkfs.xfs": "xfsprogs", "xfs_growfs": "xfsprogs", "xfs_db": "xfsprogs",
	"mkfs.btrfs": "btrfs-progs", "btrfs": "btrfs-progs", "btrfstune": "btrfs-progs",
	"iscsiadm": "", // built in this repository: see image/iscsiadm
}

func TestImageContainsTheDriversTools(t *testing.T) {
	var installed string
	for _, in := range load(t, "spdk-csi") {
		if in.name == "RUN" && strings.Contains(in.rest, "apt-get install") {
			installed = in.rest
		}
	}
	assert.Contains(t, installed, "--no-install-recommends")
	run := commandsOf(t, filepath.Join(repository, "driver"))
	require.NotEmpty(t, run)
	// The names of these programs are computed, or the programs are run by mount-utils or
	// image/iscsiadm.
	run = append(run, "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "resize2fs", "xfs_growfs", "btrfs", "mount", "umount", "nsenter")
	for _, program := range run {
		pkg, known := packageOf[program]
		require.True(t, known, "the driver runs %s: add the Debian package of this program", program)
		if pkg != "" {
			assert.Contains(t, strings.Fields(installed), pkg, program)
		}
	}
	source, err := os.ReadFile("image/iscsiadm")
	require.NoError(t, err)
	assert.Contains(t, string(source), "nsenter --mount=")
	info, err := os.Stat("image/iscsiadm")
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&0o111, "image/iscsiadm must be executable")
}

// commandsOf returns the programs that the code below a directory runs. It finds them in the
// literals that are passed to functions that run commands.
func commandsOf(t *testing.T, folder string) []string {
	var found []string
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Command", "CommandContext", "runTool"}, s.Sel.Name) {
				for _, a := range call.Args {
					if lit, ok := a.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						if name, err := strconv.Unquote(lit.Value); err == nil {
							found = append(found, name)
						}
						break
					}
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	return found
}
