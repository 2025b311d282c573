package manual

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
)

// patience is the maximum time for a page. A correct page takes much less.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(insideVariable) != "" {
		os.Exit(inside())
	}
	os.Exit(m.Run())
}

func TestManualCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	if os.Geteuid() != 0 {
		t.Skip("run as root: each page of the manual gets a root directory and a network of its own")
	}
	for _, program := range []string{"bash", "curl", "jq", "openssl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	mounted, err := isMountPoint("/")
	require.NoError(t, err)
	if !mounted {
		t.Skip("the root directory is not a mount point, so a page cannot have mounts of its own. For a chroot in DIR, run `mount --bind DIR DIR` before")
	}
	repository, err := filepath.Abs("../../..")
	require.NoError(t, err)
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "./cmd/spdk-proxy", "./cmd/spdk-csi", "./cmd/kubectl-spdkgate")
	build.Dir = repository
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	certificates := t.TempDir()
	authority := authntest.NewAuthority(t, "clients")
	authntest.WritePair(t, certificates, "dashboard", authority.Client(func(c *x509.Certificate) { c.DNSNames = []string{"dashboard.example"} }))
	for _, name := range []string{"client-ca.crt", "cluster-1-ca.crt"} {
		require.NoError(t, os.WriteFile(filepath.Join(certificates, name), authority.PEM(), 0o644))
	}
	for _, p := range pages {
		t.Run(p.path, func(t *testing.T) {
			script := p.script(t, filepath.Join(repository, p.path))
			file := filepath.Join(t.TempDir(), "page.sh")
			require.NoError(t, os.WriteFile(file, []byte(script), 0o644))
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), insideVariable+"="+t.TempDir(), "PAGE="+file, "REPOSITORY="+repository, "CERTIFICATES="+certificates,
				"TICKS=```", "PATH="+filepath.Join(repository, "test/checks/manual/stubs")+":"+bin+":"+os.Getenv("PATH"))
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
				Pdeathsig:  syscall.SIGKILL,
			}
			var output bytes.Buffer
			cmd.Stdout, cmd.Stderr = &output, &output
			// this also kills all processes that it started
			ended := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
			defer ended.Stop()
			assert.NoError(t, cmd.Run(), "%s", output.String())
		})
	}
}

// isMountPoint reports whether a file system is mounted at a directory.
func isMountPoint(dir string) (bool, error) {
	var found unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dir, 0, 0, &found)
	if err == nil && found.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = errors.New("the kernel does not report mount points: Linux 5.8 or newer is needed")
	}
	return found.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, err
}

func TestIsMountPoint(t *testing.T) {
	for dir, want := range map[string]bool{"/proc": true, t.TempDir(): false} {
		found, err := isMountPoint(dir)
		require.NoError(t, err)
		assert.Equal(t, want, found, dir)
	}
}

// script returns the bash script of a page.
func (p page) script(t *testing.T, path string) string {
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString(prelude)
	blocks := consoleBlocks(source)
	require.NotEmpty(t, blocks, "no commands on this page")
	for from := range p.typed {
		assert.Contains(t, strings.Join(blocks, ""), from, "what a reader replaces on %s", p.path)
	}
	before, skipped := map[int]string{}, map[int]bool{}
	for excerpt, commands := range p.before {
		i, err := blockWith(excerpt, blocks)
		require.NoError(t, err, "%s: before", p.path)
		require.Empty(t, before[i], "%s: before names a block twice, the second time as %q", p.path, excerpt)
		before[i] = commands
	}
	for _, excerpt := range slices.Concat(p.synopses, p.leave) {
		i, err := blockWith(excerpt, blocks)
		require.NoError(t, err, "%s: synopses and leave", p.path)
		require.False(t, skipped[i], "%s: synopses and leave name a block twice, the second time as %q", p.path, excerpt)
		skipped[i] = true
	}
	fmt.Fprintln(&b, p.setup)
	for i, block := range blocks {
		fmt.Fprintf(&b, "# block %d\n%s\n", i, before[i])
		if skipped[i] {
			continue
		}
		for from, to := range p.typed {
			block = strings.ReplaceAll(block, from, to)
		}
		b.WriteString(block)
	}
	return b.String()
}

// blockWith returns the index of the only block that contains the given text.
func blockWith(excerpt string, blocks []string) (int, error) {
	found := -1
	for i, block := range blocks {
		switch {
		case !strings.Contains(block, excerpt):
		case found >= 0:
			return -1, fmt.Errorf("%q is in several blocks of commands: name the block by a text that only this one contains", excerpt)
		default:
			found = i
		}
	}
	if found < 0 || excerpt == "" {
		return -1, fmt.Errorf("no block of commands contains %q: correct pages_test.go", excerpt)
	}
	return found, nil
}

func TestCodeBlockIsFoundByItsText(t *testing.T) {
	blocks := []string{"spdk-proxy status\n", "spdk-proxy saved list\nspdk-proxy saved use NAME\n"}
	i, err := blockWith("saved list", blocks)
	require.NoError(t, err)
	assert.Equal(t, 1, i)
	_, err = blockWith("spdk-proxy", blocks)
	require.ErrorContains(t, err, `"spdk-proxy" is in several blocks`)
	_, err = blockWith("top", blocks)
	require.ErrorContains(t, err, `no block of commands contains "top"`)
	_, err = blockWith("", blocks[:1])
	require.Error(t, err)
}

// Each entry in the list must match a block. Without root privileges, this is the only test of the
// list.
func TestListedBlocksExist(t *testing.T) {
	for _, p := range pages {
		p.script(t, filepath.Join("../../..", p.path))
	}
}

// consoleBlocks returns the command blocks on a page.
func consoleBlocks(source []byte) (blocks []string) {
	tree := goldmark.DefaultParser().Parse(text.NewReader(source))
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if code, ok := n.(*ast.FencedCodeBlock); ok && entering && string(code.Language(source)) == "console" {
			var b strings.Builder
			for i := range code.Lines().Len() {
				line := code.Lines().At(i)
				b.Write(line.Value(source))
			}
			blocks = append(blocks, b.String())
		}
		return ast.WalkContinue, nil
	})
	return blocks
}

// Every page with commands must be in the list, so that its commands are tested.
func TestEveryPageWithCommandsIsListed(t *testing.T) {
	found, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	for _, path := range append(found, "../../../README.md") {
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		name, err := filepath.Rel("../../..", path)
		require.NoError(t, err)
		listed := slices.ContainsFunc(pages, func(p page) bool { return p.path == name })
		assert.Equal(t, len(consoleBlocks(source)) > 0, listed, "%s: pages_test.go lists the pages that have blocks of commands", name)
	}
}
