package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/spdkgate/spdkgate/proxy/logtest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const long = time.Minute // a timeout that no passing test reaches

// If an environment variable is set, the test binary acts as spdk-proxy itself.
func TestMain(m *testing.M) {
	if os.Getenv("SPDK_PROXY_BE_MAIN") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), "SPDK_PROXY_BE_MAIN=1", "SPDK_PROXY_PASSWORD=correct horse", "SPDK_PROXY_URL=", "SPDK_PROXY_USER=")
	return cmd
}

type outcome struct {
	stdout, stderr string
	code           int
}

func run(t *testing.T, stdin string, args ...string) outcome {
	cmd := command(t.Context(), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// A served is a running spdk-proxy and its log.
type served struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
	log logtest.Log
}

func (d *served) waitFor(text string) { d.waitForTimes(text, 1) }

func (d *served) waitForTimes(text string, n int) {
	require.Eventually(d.t, func() bool { return d.log.Count(text) >= n }, long, 5*time.Millisecond, text)
}

func (d *served) hangUp() { require.NoError(d.t, d.cmd.Process.Signal(syscall.SIGHUP)) }

var servedURL = regexp.MustCompile(`https?://127\.0\.0\.1:\d+`)

func start(t *testing.T, env []string, args ...string) *served {
	d := &served{t: t, cmd: command(context.Background(), args...)}
	d.cmd.Env = append(d.cmd.Env, env...)
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	require.NoError(t, d.cmd.Start())
	t.Cleanup(func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() })
	d.waitFor("serving")
	d.url = servedURL.FindString(d.log.String())
	return d
}

// stop stops the proxy and returns its exit code.
func (d *served) stop() int {
	require.NoError(d.t, d.cmd.Process.Signal(syscall.SIGTERM))
	_ = d.cmd.Wait()
	return d.cmd.ProcessState.ExitCode()
}

func target(t *testing.T) *spdktest.Target {
	target, err := spdktest.Start(spdktest.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	return target
}

func writeConfig(t *testing.T, socket, more string) (path string) {
	dir := t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte("correct horse"), bcrypt.MinCost)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hash"), hash, 0o600))
	path = filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `
listen: "127.0.0.1:0"
tls: {self_signed_dir: .}
target: {socket: %s}
users: [{name: admin, password_hash_file: hash, roles: [admin, careful]}]
roles: {careful: {extends: [admin], deny: [spdk_kill_instance]}}
%s`, socket, more), 0o600))
	return path
}

func TestScriptCommandLineIsRecognized(t *testing.T) {
	root := newRoot()
	for args, want := range map[string]bool{
		"0.0.0.0 9009 user pass":            true,
		"0.0.0.0 9009 user pass -s /x -c c": true,
		"-s /x 0.0.0.0 9009 user pass":      true,
		"-c/c.pem host 1 user pass":         true,
		"host 9009":                         true, // the error names the missing arguments
		"serve --config x":                  false,
		"serve":                             false,
		"sevre --config x":                  false,
		"check-config x":                    false,
		"call spdk_get_version":             false,
		"":                                  false,
		"--help":                            false,
		"host port user pass":               false,
		"0.0.0.0 99999 user pass":           false,
		"hash-password 9009":                false,
	} {
		assert.Equal(t, want, isScript(root, strings.Fields(args)), args)
	}
}

func TestServedProxyAcceptsCalls(t *testing.T) {
	target := target(t)
	path := writeConfig(t, target.Socket(), "")
	d := start(t, nil, "serve", "--config", path)
	through := []string{"call", "--url", d.url, "--user", "admin", "--ca", filepath.Join(filepath.Dir(path), "tls.crt")}

	o := run(t, "", append(through, "bdev_malloc_create", "name=m0", "num_blocks=2048", "block_size=512")...)
	require.Equal(t, outcome{"\"m0\"\n", "", 0}, o)
	o = run(t, "", append(through, "bdev_get_bdevs", "name=m0")...)
	assert.Contains(t, o.stdout, "\n    \"name\": \"m0\",\n")

	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"SPDK's error":          {append(through, "bdev_get_bdevs", "name=none"), exitFailed, "No such device"},
		"denied":                {append(through, "spdk_kill_instance", "sig_name=SIGTERM"), exitDenied, "may not make this call"},
		"unknown method":        {append(through, "bdev_get_bdevz"), exitUsage, "did you mean bdev_get_bdevs?"},
		"no method":             {through, exitUsage, "METHOD is missing"},
		"no parameter":          {append(through, "bdev_get_bdevs", "nam=x"), exitUsage, "did you mean name?"},
		"wrong password":        {append(through, "--password-file", path, "spdk_get_version"), exitDenied, "authentication failed: "},
		"untrusted certificate": {[]string{"call", "--url", d.url, "--user", "admin", "spdk_get_version"}, exitUnreachable, "certificate"},
		"no server":             {[]string{"call", "--url", "http://127.0.0.1:1", "--user", "admin", "spdk_get_version"}, exitUnreachable, "refused"},
		"no user name":          {[]string{"call", "--url", d.url, "spdk_get_version"}, exitUsage, "--user"},
		"both socket and URL":   {[]string{"call", "--url", d.url, "--socket", "x", "spdk_get_version"}, exitUsage, "either"},
		"unknown flag":          {[]string{"call", "--urll", "x"}, exitUsage, "unknown flag"},
		"password in the URL":   {[]string{"call", "--url", "https://admin:hunter2@x/", "--user", "admin", "spdk_get_version"}, exitUsage, "must not contain"},
		"missing CA file":       {[]string{"call", "--url", d.url, "--user", "admin", "--ca", "/none", "spdk_get_version"}, exitUsage, "--ca"},
	} {
		o := run(t, "", c.args...)
		assert.Equal(t, c.code, o.code, name)
		assert.Contains(t, o.stderr, c.says, name)
		assert.NotContains(t, o.stderr, "hunter2")
		assert.Empty(t, o.stdout)
	}
	target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Do: spdktest.Close})
	assert.Equal(t, exitOutcomeUnknown, run(t, "", append(through, "bdev_get_bdevs")...).code)

	assert.Zero(t, d.stop())
	assert.Contains(t, d.log.String(), `"msg":"stopping"`)
	assert.NotContains(t, d.log.String(), "correct horse")
}

func TestCallWorksOverASocket(t *testing.T) {
	target := target(t)
	call := func(args ...string) outcome {
		return run(t, "", append([]string{"call", "--socket", target.Socket()}, args...)...)
	}
	assert.Contains(t, call("spdk_get_version").stdout, `"version": "SPDK v26.05`)
	assert.Equal(t, outcome{"[]\n", "", 0}, call("bdev_lvol_get_lvstores"))
	o := call("bdev_lvol_create", "lvs_name=none", "lvol_name=v", "size=1048577")
	assert.Contains(t, o.stderr, "No such device", "old parameters are translated")
	o = call("bdev_malloc_create", "name=m0")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "/num_blocks: is required")
}

func TestOldCommandLineIsAccepted(t *testing.T) {
	target := target(t)
	d := start(t, nil, "127.0.0.1", "0", "user", "hunter2", "-s", target.Socket())
	post := func(user, password string) int {
		r, err := http.NewRequest("POST", d.url, strings.NewReader(`{"id":1,"method":"spdk_get_version"}`))
		require.NoError(t, err)
		r.SetBasicAuth(user, password)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	assert.Equal(t, 200, post("user", "hunter2"))
	assert.Equal(t, 401, post("user", "xxxxxxx"))
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.cmd.Process.Pid))
	require.NoError(t, err)
	assert.NotContains(t, string(cmdline), "hunter2")
	assert.Contains(t, string(cmdline), target.Socket())
	d.waitFor("password is on the command line")
	d.waitFor("unencrypted")
	assert.NotContains(t, d.log.String(), "hunter2")
	d.hangUp()
	d.waitFor("without a configuration file")
	assert.Zero(t, d.stop())

	// rpc_http_proxy.py expects the certificate and its key in one file.
	path := writeConfig(t, target.Socket(), "")
	made := start(t, nil, "serve", "--config", path)
	made.stop()
	var both []byte
	for _, name := range []string{"tls.key", "tls.crt"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
		require.NoError(t, err)
		both = append(both, text...)
	}
	pem := filepath.Join(t.TempDir(), "both.pem")
	require.NoError(t, os.WriteFile(pem, both, 0o600))
	d = start(t, nil, "-c", pem, "127.0.0.1", "0", "user", "correct horse", "-s", target.Socket())
	require.True(t, strings.HasPrefix(d.url, "https"))
	assert.Zero(t, run(t, "", "call", "--url", d.url, "--user", "user", "--ca", pem, "spdk_get_version").code)

	o := run(t, "", "127.0.0.1", "9009", "user")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "HOST PORT USER PASSWORD")
}

func TestSignalReloadsTheConfiguration(t *testing.T) {
	target := target(t)
	path := writeConfig(t, target.Socket(), "")
	d := start(t, nil, "serve", "--config", path)
	kill := func() outcome {
		return run(t, "", "call", "--url", d.url, "--user", "admin", "--ca", filepath.Join(filepath.Dir(path), "tls.crt"), "bdev_malloc_create", "name=m0", "num_blocks=1", "block_size=512")
	}
	assert.Zero(t, kill().code)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte("spdk_kill_instance"), []byte("bdev_malloc_create"), 1), 0o600))
	d.hangUp()
	d.waitFor(`"msg":"reloaded"`)
	assert.Equal(t, exitDenied, kill().code)

	require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte("spdk_kill_instance"), []byte("no_such_method"), 1), 0o600))
	d.hangUp()
	d.waitFor("reload refused, the old configuration remains in effect")
	assert.Equal(t, exitDenied, kill().code)
}

func TestServeDoesNotStartWithAnInvalidConfiguration(t *testing.T) {
	for name, c := range map[string]struct{ path, says string }{
		"missing configuration":   {filepath.Join(t.TempDir(), "none"), "there is no configuration at"},
		"unknown key":             {writeConfig(t, "/s", "usres: []"), "usres is not a key: did you mean users?"},
		"address of another host": {otherAddress(t), "listen on 192.0.2.1:1"},
	} {
		o := run(t, "", "serve", "--config", c.path)
		assert.Equal(t, exitFailed, o.code, name)
		assert.Contains(t, o.stderr, c.says, name)
	}
}

func otherAddress(t *testing.T) string {
	path := writeConfig(t, "/s", "")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte("127.0.0.1:0"), []byte("192.0.2.1:1"), 1), 0o600))
	return path
}

func TestCheckConfigReportsTheResult(t *testing.T) {
	path := writeConfig(t, "/s", "")
	assert.Equal(t, outcome{path + " is valid: 1 user, 1 role\n", notSaved + notFrozen, 0}, run(t, "", "check-config", path))
	require.NoFileExists(t, filepath.Join(filepath.Dir(path), "tls.key"), "check-config creates no files")
	o := run(t, "", "check-config", writeConfig(t, "/s", "limits: {drain: 5}"))
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "line 7: limits.drain must be a duration with its unit")
}

func TestHashPasswordOutputIsAccepted(t *testing.T) {
	for flag, want := range map[string]string{"": "$argon2id$", "--bcrypt": "$2a$"} {
		args := strings.Fields("hash-password " + flag)
		o := run(t, "correct horse\nsecond line\n", args...)
		require.Zero(t, o.code)
		assert.True(t, strings.HasPrefix(o.stdout, want))
		path := writeConfig(t, "/s", "")
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(path), "hash"), []byte(o.stdout), 0o600))
		assert.Zero(t, run(t, "", "check-config", path).code)
	}
}

func TestVersionAndHelpArePrinted(t *testing.T) {
	assert.Regexp(t, `^spdk-proxy .+, \d+ methods of SPDK from v23\.01 on\n$`, run(t, "", "version").stdout)
	assert.Equal(t, run(t, "", "version"), run(t, "", "--version"))
	for _, args := range [][]string{{}, {"--help"}, {"help"}} {
		assert.Contains(t, run(t, "", args...).stdout, "rpc_http_proxy.py works unchanged")
	}
	for _, name := range []string{"serve", "call", "check-config", "hash-password", "version"} {
		assert.Contains(t, run(t, "", name, "--help").stdout, "Usage:\n  spdk-proxy "+name)
	}
	o := run(t, "", "sevre")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, `unknown command "sevre": did you mean serve?`)
}

const notSaved = "warning: target.save is missing: the target's configuration is not saved, and is lost when spdk_tgt ends. Set target.save.dir, as the packaged configuration does\n"

const notFrozen = "warning: target.freeze is missing: snapshots of volumes in use are refused. Set target.freeze.dir, as the packaged configuration does\n"
