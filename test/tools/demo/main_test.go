package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/logtest"
)

// standIn is a demo that only waits for Ctrl-C.
const standIn = `package main

import (
	"fmt"
	"os"
	"os/signal"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	fmt.Println("ready")
	<-stop
	fmt.Println("stopped")
}
`

// Ctrl-C is the normal way to end `make demo ARGS=--keep`, so make must not report it as an error.
func TestCtrlCEndsMakeDemoWithoutError(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	makefile, err := filepath.Abs("../../../Makefile")
	require.NoError(t, err)
	buildScript, err := os.ReadFile("../build.sh")
	require.NoError(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module demo\n\ngo 1.26\n", "test/tools/demo/main.go": standIn, "cmd/spdk-proxy/main.go": standIn, "cmd/spdk-csi/main.go": standIn,
		"test/tools/programs.sh": "#!/bin/sh\n", "test/tools/build.sh": string(buildScript),
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	var out logtest.Log
	cmd := exec.Command("make", "-f", makefile, "demo")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "ready\n") }, time.Minute, 5*time.Millisecond, out.String())
	// A terminal signals the whole group at once. Here, make receives the signal first, because GNU
	// make 4.3 reports an error if a child ends before make has handled the signal. The real demo
	// takes longer to end.
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Eventually(t, func() bool { return !sigintPending(t, cmd.Process.Pid) }, time.Minute, time.Millisecond)
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	_ = cmd.Wait() // the signal ends make itself
	assert.Contains(t, out.String(), "stopped\n")
	assert.NotContains(t, out.String(), "*** ", "make reports an error")
}

// The first build of the demo takes minutes. make shows modules, packages and errors as they
// appear, and fails if the build fails.
func TestBuildShowsProgress(t *testing.T) {
	dir := t.TempDir()
	const goCommand = `#!/bin/sh
echo "go: downloading example.com/m v1.0.0"
i=0
while [ $i -lt 120 ]; do i=$((i+1)); echo "example.com/m/package_$i"; done
[ "$3" = ./fails ] || exit 0
echo "# example.com/m"
echo "./main.go:1:2: undefined: x"
exit 1
`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(goCommand), 0o700))
	build := func(program string) (string, error) {
		cmd := exec.Command("../build.sh", program)
		cmd.Env = append(os.Environ(), "GO="+filepath.Join(dir, "go"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := build("./works")
	require.NoError(t, err)
	assert.Contains(t, out, "\n100 packages compiled\n")
	out, err = build("./fails")
	require.Error(t, err)
	assert.Contains(t, out, "\ngo: downloading example.com/m v1.0.0\n50 packages compiled\n100 packages compiled\n# example.com/m\n./main.go:1:2: undefined: x\n")
}

// sigintPending reports whether a process has not yet handled an interrupt that was sent to it.
func sigintPending(t *testing.T, pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^ShdPnd:\s+([0-9a-f]+)$`).FindSubmatch(status)
	require.NotNil(t, found, string(status))
	pending, err := strconv.ParseUint(string(found[1]), 16, 64)
	require.NoError(t, err)
	return pending&(1<<(syscall.SIGINT-1)) != 0
}
