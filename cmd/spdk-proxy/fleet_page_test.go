package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// The page contains the same table as the command's output, and is served only while the command is
// running.
func TestFleetPageShowsTheTable(t *testing.T) {
	sim, err := spdktest.Start(spdktest.Options{})
	require.NoError(t, err)
	defer func() { _ = sim.Close() }()
	stored(t, sim)
	up := through(t, sim)
	list := writeFleet(t, fmt.Sprintf("defaults: {user: admin, password_file: password}\nservers: [{name: up, url: %q, ca_file: %s}, {name: gone, url: 'https://127.0.0.1:1'}]", up[1], up[5]))
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(list), "password"), []byte("correct horse\n"), 0o600))

	ctx, interrupt := context.WithCancel(t.Context())
	from, to := io.Pipe()
	root := newRoot()
	root.SetOut(to)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"fleet", list, "--serve", "0"})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(ctx) }()
	url, err := bufio.NewReader(from).ReadString('\n')
	require.NoError(t, err)
	url = url[:len(url)-1]
	response, err := http.Get(url + "table")
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode)
	assert.Regexp(t, `(?s)>gone<.*unreachable.*>up<.*v26\.05.*2 storage servers|(?s)2 storage servers, \d needs? attention.*>gone<.*unreachable.*>up<.*v26\.05`, string(text))
	assert.NotContains(t, string(text), "correct horse")
	interrupt()
	require.NoError(t, <-ended)
	_, err = http.Get(url)
	assert.Error(t, err)
}

func TestFleetPageIsServedOnlyToThisHost(t *testing.T) {
	for value, want := range map[string]string{
		"8080": "127.0.0.1:8080", "0": "127.0.0.1:0", "127.0.0.1:8080": "127.0.0.1:8080", "127.0.0.2:80": "127.0.0.2:80", "[::1]:8080": "[::1]:8080",
	} {
		address, err := loopback(value)
		require.NoError(t, err, value)
		assert.Equal(t, want, address.String())
	}
	list := writeFleet(t, "servers: [{name: a, url: 'https://127.0.0.1:1', token_file: none}]")
	for _, value := range []string{":8080", "0.0.0.0:8080", "[::]:8080", "192.0.2.1:8080", "localhost:8080", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "-1", "x"} {
		o := run(t, "", "fleet", list, "--serve="+value)
		assert.Equal(t, exitUsage, o.code, value)
		assert.Contains(t, o.stderr, "--serve", value)
	}
	assert.Equal(t, exitUsage, run(t, "", "fleet", list, "--serve", "0", "--watch").code)
	assert.Equal(t, exitUsage, run(t, "", "fleet", list, "--serve", "0", "-o", "json").code)
	assert.Equal(t, exitUsage, run(t, "", "fleet", list, "--serve", "0", "--interval", "1ms").code)
}
