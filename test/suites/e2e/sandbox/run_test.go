package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	testSysctl = "kernel.keys.root_maxkeys" // harmless if a test is killed
	// caseVariable selects what the program does inside the sandbox. outerVariable is set if a
	// sandbox's outer part runs in a separate process.
	caseVariable  = "SPDKGATE_SANDBOX_CASE"
	outerVariable = "SPDKGATE_SANDBOX_PARENT"
	// loopsVariable names a file that lists the loop devices attached inside the sandbox, one per
	// line. The file is outside the state directory, because once that directory has been removed,
	// nothing else shows which devices belonged to the sandbox.
	loopsVariable = "SPDKGATE_SANDBOX_LOOPS"
)

func TestMain(m *testing.M) {
	if dir, inside := Inside(); inside {
		if err := disturb(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if os.Getenv(caseVariable) != "exits" {
			select {} // until the sandbox is ended
		}
		os.Exit(3)
	}
	if parent := os.Getenv(outerVariable); parent != "" {
		_, err := Run(context.Background(), options(parent))
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// disturb creates all kinds of objects that a sandbox must remove, and an orphaned process.
// Finally, it writes the file "ready".
func disturb(dir string) error {
	folder := filepath.Join(dir, "disks")
	script := fmt.Sprintf(`set -e
mkdir %[1]s && truncate -s 32M %[1]s/disk
d=$(losetup --find --show %[1]s/disk)
echo $d > "$SPDKGATE_SANDBOX_LOOPS"
mkfs.ext4 -q $d && mkdir %[1]s/mounted && mount $d %[1]s/mounted
losetup --find --show $d >> "$SPDKGATE_SANDBOX_LOOPS"
ip link add inside0 type veth peer name inside1
echo 123 > /proc/sys/%[2]s
for c in %[3]s; do mkdir -p $c/%[4]s/a/b; done
setsid sleep 1000 >/dev/null 2>&1 &
for c in %[3]s; do [ -e $c/%[4]s/a/b/cpuset.cpus ] || echo $! > $c/%[4]s/a/b/cgroup.procs; done
ls /proc/$! > /dev/null
`, folder, strings.ReplaceAll(testSysctl, ".", "/"), strings.Join(hierarchies(), " "), Cgroup(dir))
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if err := disturbMachine(dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600)
}

func options(parent string) Options {
	return Options{Parent: parent, Name: "sandbox-test", Sysctls: []string{testSysctl}, LoopDir: "disks", Log: func(string, ...any) {}}
}

// A hostState records the parts of the host's state that a sandbox must not change.
type hostState struct {
	sysctl, loops, mounts, interfaces, cgroups string
}

func readHostState(t *testing.T) hostState {
	read := func(script string) string {
		out, err := exec.Command("sh", "-c", script).CombinedOutput()
		require.NoError(t, err)
		return string(out)
	}
	return hostState{
		sysctl: read("cat /proc/sys/" + strings.ReplaceAll(testSysctl, ".", "/")), loops: attached(t),
		mounts: read("grep -c /disks/mounted /proc/self/mounts || true"), interfaces: read("ls /sys/class/net"),
		cgroups: read("ls -d /sys/fs/cgroup/sandbox-test-* /sys/fs/cgroup/*/sandbox-test-* 2>/dev/null || true"),
	}
}

// attached returns the backing files of the loop devices that were attached inside the sandbox and
// are still attached.
func attached(t *testing.T) string {
	names, err := os.ReadFile(os.Getenv(loopsVariable))
	if errors.Is(err, fs.ErrNotExist) {
		return "" // nothing has run inside yet
	}
	require.NoError(t, err)
	found := ""
	for name := range strings.FieldsSeq(string(names)) {
		// Another process may have attached the device since then; its file has another path.
		file, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(name), "loop/backing_file"))
		if err == nil && (strings.Contains(string(file), "sandbox-test-") || strings.Contains(string(file), "/loop")) {
			found += name + " on " + string(file)
		}
	}
	return found
}

func prepareTest(t *testing.T) (parent string, before hostState) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for namespaces")
	}
	for _, program := range []string{"losetup", "mkfs.ext4", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is missing", program)
		}
	}
	parent = t.TempDir()
	t.Setenv(loopsVariable, filepath.Join(t.TempDir(), "loops"))
	return parent, readHostState(t)
}

func requireNothingLeft(t *testing.T, parent string, before hostState) {
	t.Helper()
	assert.Equal(t, before, readHostState(t))
	entries, err := os.ReadDir(parent)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// The exit code is that of the program inside the sandbox, and the sandbox is removed completely.
func TestRunLeavesNothingBehind(t *testing.T) {
	parent, before := prepareTest(t)
	t.Setenv(caseVariable, "exits")
	code, err := Run(t.Context(), options(parent))
	require.NoError(t, err)
	assert.Equal(t, 3, code)
	requireNothingLeft(t, parent, before)
}

// The sandbox of a run that ends before it has written logs is also removed completely.
func TestRunWithoutLogsLeavesNothingBehind(t *testing.T) {
	parent, before := prepareTest(t)
	o := options(parent)
	o.Saved, o.Keep = "logs", t.TempDir()
	o.Prepare = func(string) error { return errors.New("not prepared") }
	_, err := Run(t.Context(), o)
	require.EqualError(t, err, "not prepared")
	requireNothingLeft(t, parent, before)
}

// Ctrl-C ends the context.
func TestInterruptedRunLeavesNothingBehind(t *testing.T) {
	parent, before := prepareTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		awaitReady(t, parent)
		cancel()
	}()
	_, err := Run(ctx, options(parent))
	require.ErrorContains(t, err, "interrupted")
	requireNothingLeft(t, parent, before)
}

// When the outer process is killed, its sandbox also ends, and the next run removes everything that
// is left behind.
func TestNextRunCleansUpAfterKill(t *testing.T) {
	parent, before := prepareTest(t)
	outer := exec.Command(os.Args[0])
	outer.Env = append(os.Environ(), outerVariable+"="+parent)
	outer.Stderr = os.Stderr
	require.NoError(t, outer.Start())
	awaitReady(t, parent)
	require.NoError(t, outer.Process.Kill())
	require.Error(t, outer.Wait())
	left, err := leftovers(options(parent))
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.NotEqual(t, before, readHostState(t), "the killed run left something")

	t.Setenv(caseVariable, "exits")
	_, err = Run(t.Context(), options(parent))
	require.NoError(t, err)
	requireNothingLeft(t, parent, before)
}

// awaitReady waits until the program inside has completed all steps.
func awaitReady(t *testing.T, parent string) {
	assert.Eventually(t, func() bool {
		found, _ := filepath.Glob(filepath.Join(parent, "*", "ready"))
		return len(found) == 1
	}, 2*time.Minute, 50*time.Millisecond)
}

// The directory of a running process is not a leftover.
func TestLockedDirectoriesAreNotLeftovers(t *testing.T) {
	o := options(t.TempDir())
	dir := filepath.Join(o.Parent, o.Name+"-1")
	require.NoError(t, os.Mkdir(dir, 0o700))
	lock, err := lockDir(dir)
	require.NoError(t, err)
	left, err := leftovers(o)
	require.NoError(t, err)
	assert.Empty(t, left)
	require.NoError(t, lock.Close())
	left, err = leftovers(o)
	require.NoError(t, err)
	assert.Equal(t, []string{dir}, left)
}
