package main

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/service"
)

func TestProfilesAreServedOnlyLocally(t *testing.T) {
	runtime := t.TempDir()
	d := start(t, []string{"RUNTIME_DIRECTORY=" + runtime}, "serve", "--config", writeConfig(t, target(t).Socket(), ""))
	info, err := os.Stat(filepath.Join(runtime, "debug"))
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm(), "only the owner may read the file")
	profile := func(args ...string) (stdout []byte, stderr string, code int) {
		cmd := command(t.Context(), append([]string{"profile"}, args...)...)
		cmd.Env = append(cmd.Env, "RUNTIME_DIRECTORY="+runtime)
		var out, complaints bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &complaints
		if err := cmd.Run(); err != nil {
			require.IsType(t, &exec.ExitError{}, err)
		}
		return out.Bytes(), complaints.String(), cmd.ProcessState.ExitCode()
	}
	for _, name := range service.Profiles() {
		out, complaint, code := profile(name, "--seconds", "1")
		require.Zero(t, code, "%s: %s", name, complaint)
		switch name {
		case "goroutines":
			assert.Contains(t, string(out), "goroutine 1 [")
			assert.Contains(t, string(out), "proxy.(*Server).Serve")
		case "trace":
			assert.True(t, bytes.HasPrefix(out, []byte("go 1.")))
		default: // in pprof's format
			_, err := gzip.NewReader(bytes.NewReader(out))
			assert.NoError(t, err, name)
		}
	}
	for _, args := range [][]string{{}, {"cmdline"}, {"heap", "cpu"}, {"heap", "--seconds", "0"}} {
		_, _, code := profile(args...)
		assert.Equal(t, exitUsage, code, args)
	}

	// The public address does not serve profiles.
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
		resp, err := client.Get(d.url + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusNotFound, resp.StatusCode, path)
	}
	d.stop()
	_, complaint, code := profile("heap")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, complaint, "check that the service runs")
}
