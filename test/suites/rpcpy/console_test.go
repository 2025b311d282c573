package rpcpy

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// TestConsoleCommands formats many calls to each method as the console does. For calls that become
// a command of scripts/rpc.py, the test runs rpc.py --dry-run from a real SPDK source tree, and
// compares what rpc.py would send with the call.
func TestConsoleCommands(t *testing.T) {
	script := os.Getenv(variable)
	if script == "" {
		t.Skipf("set %s to scripts/rpc.py of an SPDK source tree to run this", variable)
	}
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("Chromium is missing. Install it: sudo apt-get install chromium")
	}
	tree := filepath.Dir(filepath.Dir(script))
	release := treeRelease(t, tree)
	doc := rpcschema.Default()
	calls := callsOf(doc, release)
	var made []madeCall
	commanded, kinds := map[string]bool{}, map[string]int{}
	for i, w := range written(t, doc, release, calls) {
		c := calls[i]
		words, shown := strings.CutPrefix(strings.ReplaceAll(w.Tab, " \\\n  ", " "), rpcpyStart)
		secret := strings.Contains(w.Tab, "every user of that host can read arguments")
		assert.Equal(t, w.Command != "" && !secret, shown, w.Tab)
		if shown {
			assert.Equal(t, w.Command, words)
			kinds[c.kind]++
		} else {
			assert.Contains(t, w.Tab, "client = JSONRPCClient(", "%s %v", c.method.Name, c.params)
		}
		if w.Command != "" {
			made = append(made, madeCall{c, w.Command})
			commanded[c.method.Name] = true
		}
	}
	requests := dryRun(t, tree, made)
	require.Len(t, requests, len(made))
	for i, m := range made {
		// rpc.py treats some options on standard input differently from options in arguments.
		// Before v26.05, it replaces _ by a dash only in arguments, and it handles --timeout-ms
		// differently as well. Therefore, the result for arguments is decisive.
		if requests[i].makes(doc, m.sampleCall, release) && m.kind != "all parameters" {
			continue
		}
		if r := dryRunAlone(t, tree, m); !r.makes(doc, m.sampleCall, release) {
			t.Errorf("rpc.py of %s: the call %s is\n%s\nrpc.py sends\n%s\nfor\n%s", release, m.method.Name, text(m.params), text(r), m.line)
		}
	}
	var without []string
	for _, m := range doc.OfSPDK() {
		if words, err := m.RPCPyAt(release); m.Has(release) && !commanded[m.Name] && words != nil {
			require.NoError(t, err)
			without = append(without, m.Name)
		}
	}
	t.Logf("%s: %d calls, %d of them as commands of rpc.py for %d methods; the tab shows %v", release, len(calls), len(made), len(commanded), kinds)
	assert.Empty(t, without, "rpc.py has these methods, but no call becomes a command")
}

// The console reads the same parameters from files as `spdk-proxy call` does, because they may
// contain secrets.
func TestConsoleReadsSecretsFromFiles(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("Chromium is missing. Install it: sudo apt-get install chromium")
	}
	doc := rpcschema.Default()
	release := rpcschema.MustRelease("v26.05")
	var calls []sampleCall
	for _, c := range callsOf(doc, release) {
		if c.kind == "all parameters" {
			calls = append(calls, c)
		}
	}
	secrets := 0
	for i, w := range written(t, doc, release, calls) {
		for _, p := range calls[i].method.Params {
			if _, given := calls[i].params[p.Name]; !given {
				continue
			}
			inFile := regexp.MustCompile(`\s` + p.Name + `:?=@`).MatchString(w.SPDKProxy)
			assert.Equal(t, doc.MayHaveSecrets(p.Schema), inFile, "%s of %s", p.Name, w.SPDKProxy)
			if inFile {
				secrets++
			}
		}
	}
	assert.NotZero(t, secrets)
	t.Logf("%d parameters of %d calls come from files", secrets, len(calls))
}

// rpcpyStart is the beginning of the console's rpc.py commands.
const rpcpyStart = "# in SPDK's folder, on the storage server\nscripts/rpc.py -s /run/spdk-proxy-rpc.sock "

var version = regexp.MustCompile(`SPDK_VERSION_(?:MAJOR|MINOR)\s+(\d+)`)

// treeRelease reads the release of a source tree.
func treeRelease(t *testing.T, tree string) rpcschema.Release {
	t.Helper()
	if text, err := os.ReadFile(filepath.Join(tree, "VERSION")); err == nil {
		return rpcschema.MustRelease("v" + strings.TrimSpace(string(text)))
	}
	header, err := os.ReadFile(filepath.Join(tree, "include", "spdk", "version.h"))
	require.NoError(t, err)
	parts := version.FindAllSubmatch(header, 2)
	require.Len(t, parts, 2)
	return rpcschema.MustRelease(fmt.Sprintf("v%s.%02s", parts[0][1], parts[1][1]))
}

// A writtenCall is a call as shown in the console's rpc.py tab, and as arguments for rpc.py, or ""
// if rpc.py cannot make it.
type writtenCall struct {
	Tab       string `json:"tab"`
	Command   string `json:"command"`
	SPDKProxy string `json:"spdkProxy"`
}

// written returns the commands that the console shows for each call.
func written(t *testing.T, doc *rpcschema.Document, r rpcschema.Release, calls []sampleCall) (list []writtenCall) {
	t.Helper()
	exported, err := doc.Export(r, nil)
	require.NoError(t, err)
	inputs := []map[string]string{}
	for _, c := range calls {
		inputs = append(inputs, map[string]string{"method": c.method.Name, "params": text(c.params)})
	}
	cmd := exec.Command("go", "run", "./snippets")
	cmd.Dir, cmd.Stderr = "../browser", os.Stderr
	cmd.Stdin = strings.NewReader(text(map[string]any{"document": json.RawMessage(exported), "calls": inputs}))
	out, err := cmd.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &list))
	require.Len(t, list, len(calls))
	return list
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// makes reports whether rpc.py sends a call. A parameter or member with the schema's default counts
// as absent.
func (q *request) makes(doc *rpcschema.Document, c sampleCall, r rpcschema.Release) bool {
	if q == nil || q.Method != c.method.Name {
		return false
	}
	members := rpcschema.Properties{}
	for _, p := range c.method.Params {
		if p.Schema.Has(r) {
			members = append(members, rpcschema.Property{Name: p.Name, Schema: p.Schema})
		}
	}
	return reflect.DeepEqual(bare(doc, members, c.params), bare(doc, members, q.Params))
}

// bare returns an object without members that have their default values, and with numbers in a
// uniform format.
func bare(doc *rpcschema.Document, members rpcschema.Properties, object map[string]any) map[string]any {
	out := map[string]any{}
	for name, v := range object {
		v = oneSpelling(v)
		s := members.Get(name)
		if s == nil {
			out[name] = v
			continue
		}
		if s.Default != nil && reflect.DeepEqual(oneSpelling(s.Default), v) {
			continue
		}
		s = doc.Resolve(s)
		if s.Default != nil && reflect.DeepEqual(oneSpelling(s.Default), v) {
			continue
		}
		if inner, ok := v.(map[string]any); ok && len(s.Properties) > 0 {
			v = bare(doc, s.Properties, inner)
		}
		out[name] = v
	}
	return out
}

func oneSpelling(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return v
		}
		return "number " + n.RatString()
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = oneSpelling(item)
		}
		return list
	case map[string]any:
		object := map[string]any{}
		for name, member := range v {
			object[name] = oneSpelling(member)
		}
		return object
	}
	return v
}
