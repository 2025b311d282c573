package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/check"
	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// hostile returns a name that contains every unsafe character except NUL, which terminates strings
// in C.
func hostile() string {
	var b strings.Builder
	for r := rune(1); r <= 0xffff; r++ {
		if printable.Unsafe(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// assertPrintable fails if the output contains unsafe characters, or if a name has started a new
// line.
func assertPrintable(t *testing.T, output string) {
	t.Helper()
	for line := range strings.Lines(output) {
		line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "")
		assert.True(t, printable.Valid(line), "%q", line)
	}
}

// Every command inherits output escaping from the root command's PersistentPreRun hook. A hook of
// its own would replace the root's hook.
func TestEveryCommandEscapesItsOutput(t *testing.T) {
	var visit func(root, cmd *cobra.Command)
	visit = func(root, cmd *cobra.Command) {
		if cmd != root {
			assert.Nil(t, cmd.PersistentPreRun, cmd.CommandPath())
			assert.Nil(t, cmd.PersistentPreRunE, cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			visit(root, c)
		}
	}
	root := newRoot()
	visit(root, root)
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	root.AddCommand(&cobra.Command{Use: "probe", RunE: func(cmd *cobra.Command, _ []string) error {
		cmd.PrintErr(hostile())
		_, err := cmd.OutOrStdout().Write([]byte(hostile()))
		return err
	}})
	root.SetArgs([]string{"probe"})
	require.NoError(t, root.Execute())
	assertPrintable(t, out.String())
	assertPrintable(t, errs.String())
	assert.Contains(t, out.String(), `\u202e`)
	assert.Contains(t, errs.String(), `\u202e`)
}

// Commands escape hostile names that the target returns.
func TestOutputEscapesHostileNames(t *testing.T) {
	sim := target(t)
	socket := spdkrpc.NewSocket(sim.Socket())
	defer func() { _ = socket.Close() }()
	inMalloc := hostile()
	store := "s\x1b[31m\u202e\n\u009b"
	for _, c := range [][2]any{
		{"bdev_malloc_create", map[string]any{"name": inMalloc, "num_blocks": 16384, "block_size": 4096}},
		{"bdev_lvol_create_lvstore", map[string]any{"bdev_name": inMalloc, "lvs_name": store}},
		{"bdev_lvol_create", map[string]any{"lvs_name": store, "lvol_name": "v\u2066\u2028\r", "size_in_mib": 8, "thin_provision": true}},
	} {
		require.NoError(t, socket.Call(t.Context(), c[0].(string), c[1], nil), c[0])
	}
	at := through(t, sim)
	direct := []string{"--socket", sim.Socket()}
	for name, c := range map[string]struct {
		args []string
		has  string
	}{
		"status":          {append([]string{"status"}, at...), `s\u001b[31m\u202e`},
		"status as JSON":  {append([]string{"status", "-o", "json"}, at...), `\u202e`},
		"status as YAML":  {append([]string{"status", "-o", "yaml"}, at...), `\u202e`},
		"top":             {append([]string{"top", "--all", "--count", "1", "--interval", "1s"}, direct...), `\u202e\u000a`},
		"call":            {append([]string{"call", "bdev_get_bdevs"}, direct...), `\u202e`},
		"call by a proxy": {append([]string{"call", "bdev_get_bdevs"}, at...), `\u202e`},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, "", c.args...)
			require.Zero(t, o.code, o.stderr)
			assert.Contains(t, o.stdout, c.has)
			shown, _ := strings.CutPrefix(o.stdout, "\x1b[H\x1b[2J")
			assertPrintable(t, shown)
			if strings.HasPrefix(strings.TrimSpace(o.stdout), "[") || c.args[len(c.args)-1] == "json" {
				assert.True(t, json.Valid([]byte(o.stdout)))
			}
		})
	}
	o := run(t, "", append([]string{"call", "bdev_get_bdevs"}, direct...)...)
	var bdevs []struct{ Name string }
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &bdevs))
	assert.Equal(t, inMalloc, bdevs[0].Name, "a script gets the name as it is")
}

// Hostile text in a target's errors is escaped.
func TestHostileErrorsAreEscaped(t *testing.T) {
	sim := target(t)
	sim.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Do: spdktest.Fail, Times: -1, Error: &jsonrpc.Error{Code: -1, Message: hostile()}})
	o := run(t, "", "call", "--socket", sim.Socket(), "bdev_get_bdevs")
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, `\u202e`)
	assertPrintable(t, o.stderr)
	var b bytes.Buffer
	printError(&b, errors.New(hostile()))
	assertPrintable(t, b.String())
}

// A newline in a name does not start a new line of output.
func TestDiffLinesEscapeNames(t *testing.T) {
	forged := "a\nb\t\u202e\x1b[2J"
	var b bytes.Buffer
	require.NoError(t, writeDiff(&b, []persist.Call{{Subsystem: forged, Method: forged}}, nil))
	assert.Equal(t, 1, strings.Count(b.String(), "\n"))
	assertPrintable(t, b.String())

	b.Reset()
	list := []check.Result{
		{Bdev: forged, Store: forged, Unchecked: errors.New(forged)},
		{Bdev: forged, Store: forged, Report: blobstore.Report{}},
		{Bdev: forged, Store: forged, Report: blobstore.Report{Findings: []blobstore.Finding{{Page: -1, What: forged}, {Page: 1, What: forged}}}},
	}
	require.Error(t, checkLvstore{}.report(&b, list))
	assert.Equal(t, 5, strings.Count(b.String(), "\n"), b.String())
	assertPrintable(t, b.String())

	b.Reset()
	data, err := json.Marshal(map[string]any{"time": "2026-11-23T10:00:00Z", "type": forged, "text": forged})
	require.NoError(t, err)
	p := &eventPrinter{out: &b}
	require.NoError(t, p.printOne(string(data)))
	assert.Equal(t, 1, strings.Count(b.String(), "\n"))
	assertPrintable(t, b.String())
}

// watch escapes the events of an untrusted proxy, even in JSON output.
func TestWatchEscapesJSON(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("id: 1\nevent: x\ndata: {\"time\":\"2026-11-23T10:00:00Z\",\"type\":\"x\",\"text\":\"a\u202e\u009b\\u001b\"}\n\n"))
	}))
	defer server.Close()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	for _, format := range []string{"json", "text"} {
		o := run(t, "", "watch", "-o", format, "--count", "1", "--url", server.URL, "--user", "u", "--ca", filepath.Join(dir, "ca.pem"))
		require.Zero(t, o.code, o.stderr)
		assert.Contains(t, o.stdout, `\u202e\u009b\u001b`)
		assertPrintable(t, o.stdout)
		assertPrintable(t, o.stderr)
	}
}
