package rpcpy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// A command is a line in testdata/commands.txt.
type command struct {
	line     string
	fails    bool
	counters bool
}

var conditions = regexp.MustCompile(`^\[(from|before) (v\d+\.\d+)\] `)

// commands returns the commands for a release.
func commands(t *testing.T, release rpcschema.Release) (list []command) {
	text, err := os.ReadFile(filepath.Join("testdata", "commands.txt"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := conditions.FindStringSubmatch(line); m != nil {
			if release.Before(rpcschema.MustRelease(m[2])) != (m[1] == "before") {
				continue
			}
			line = line[len(m[0]):]
		}
		var c command
		line, c.fails = strings.CutPrefix(line, "!")
		line, c.counters = strings.CutPrefix(line, "~")
		if c.line = line; line != "" && line[0] != '#' {
			list = append(list, c)
		}
	}
	return list
}

// numbered replaces the ids that the target has generated with numbers, in the order of their first
// occurrence, so that two runs can be compared.
type numbered map[string]int

var (
	madeUp = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9A-F]{32}\b`)
	number = regexp.MustCompile(`\b\d+(\.\d+)?\b`)
)

func (n numbered) replace(text string) string {
	return madeUp.ReplaceAllStringFunc(text, func(id string) string {
		key := strings.ToLower(strings.ReplaceAll(id, "-", ""))
		if _, known := n[key]; !known {
			n[key] = len(n)
		}
		return fmt.Sprint("id-", n[key])
	})
}

// inAnyOrder returns the lines of a JSON string, sorted.
func inAnyOrder(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, ",\n", "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestRPCPyCommandsWorkThroughTheProxy runs the commands through the socket of the real target at
// SPDK_SOCK and through the proxy's local socket, and compares exit codes and output.
func TestRPCPyCommandsWorkThroughTheProxy(t *testing.T) {
	if !realtarget.Given() {
		realtarget.Socket(t) // skips
	}
	w := newTestbed(t)
	list := commands(t, w.release())
	require.GreaterOrEqual(t, len(list), 60)
	const key = "NVMeTLSkey-1:01:MDAxMTIyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmZwJEiQ:"
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "key"), []byte(key), 0o600))
	// transports cannot be removed, so it may already exist
	w.run(w.target, "nvmf_create_transport -t TCP", "")
	all := func(socket string) (outcomes []outcome) {
		disk := filepath.Join(w.dir, "disk")
		require.NoError(t, os.RemoveAll(disk))
		require.NoError(t, os.WriteFile(disk, nil, 0o600))
		require.NoError(t, os.Truncate(disk, 256<<20))
		ids := numbered{}
		for _, c := range list {
			o := w.run(socket, c.line, "")
			o.printed = ids.replace(o.printed)
			if c.counters {
				// SPDK lists timed pollers in the order of their next run
				o.printed = inAnyOrder(number.ReplaceAllString(o.printed, "N"))
			}
			outcomes = append(outcomes, o)
		}
		return outcomes
	}
	straight := all(w.target)
	through := all(w.local)
	for i, c := range list {
		require.Equal(t, c.fails, straight[i].code != 0, "%s: %s", c.line, straight[i].printed)
		if c.fails {
			require.Contains(t, straight[i].printed, "Got JSON-RPC error response", c.line)
		}
		assert.Equal(t, straight[i], through[i], c.line)
	}
	t.Logf("%d commands", len(list))
}

// TestRPCPyScriptsWorkThroughTheProxy runs several commands from standard input, one at a time and,
// on releases that support it, as a batch.
func TestRPCPyScriptsWorkThroughTheProxy(t *testing.T) {
	w := newTestbed(t)
	const script = "spdk_get_version\n# a comment\nbdev_malloc_create -b m0 8 512\nbdev_get_bdevs -b none\nbdev_get_bdevs\n"
	const restore = "bdev_malloc_delete m0"
	lines := []string{""}
	if !w.release().Before(rpcschema.MustRelease("v26.05")) {
		lines = append(lines, "-b")
	}
	for _, line := range lines {
		straight := w.run(w.target, line, script)
		require.Zero(t, w.run(w.target, restore, "").code)
		through := w.run(w.local, line, script)
		require.Zero(t, w.run(w.target, restore, "").code)
		assert.Contains(t, straight.printed, `"code": -19`)
		assert.Equal(t, straight, through, line)
	}
}

// A user without permission sees rpc.py's ordinary error, and nothing is executed.
func TestRefusalsAreOrdinaryErrors(t *testing.T) {
	w := newTestbed(t)
	const create = "bdev_malloc_create -b m0 8 512"
	refused := func(code int, says string) {
		o := w.run(w.local, create, "")
		assert.Equal(t, 1, o.code)
		assert.Contains(t, o.printed, "Got JSON-RPC error response")
		assert.Contains(t, o.printed, fmt.Sprintf(`"code": %d`, code))
		assert.Contains(t, o.printed, says)
		assert.NotContains(t, o.printed, "Traceback")
	}
	require.NoError(t, w.proxy.Reload(w.configure(os.Getuid(), "read-only")))
	refused(-32003, "this user may not make this call")
	o := w.run(w.local, "bdev_get_bdevs", "")
	assert.Equal(t, outcome{"[]\n", 0}, o)
	require.NoError(t, w.proxy.Reload(w.configure(os.Getuid()+1, "admin")))
	refused(-32001, "no user of this proxy has your uid")
}

// A hundred concurrent processes of rpc.py are served.
func TestParallelCommandsAreServed(t *testing.T) {
	w := newTestbed(t)
	const count = 100
	outcomes := make([]outcome, count)
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() { outcomes[i] = w.run(w.local, fmt.Sprintf("bdev_null_create m%d 1 512", i), "") })
	}
	all.Wait()
	for i, o := range outcomes {
		assert.Equal(t, outcome{fmt.Sprintf("m%d\n", i), 0}, o)
	}
}
