package rpcpy

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A madeCall is a call and its command line, without rpc.py's name and socket.
type madeCall struct {
	sampleCall
	line string
}

// A request is a request that rpc.py would send.
type request struct {
	Method string         `json:"method"`
	Params map[string]any `json:"params"`
}

// dryRun returns the requests that rpc.py would send for each command, and nil for commands that it
// refuses. A shell parses the commands, as it does when users paste them. rpc.py receives many
// commands at once, because Python takes longer to start than to process them.
func dryRun(t *testing.T, tree string, calls []madeCall) (list []*request) {
	t.Helper()
	lines := argumentsOf(t, calls)
	refused := 0
	for len(list) < len(lines) {
		cmd := exec.Command("scripts/rpc.py", "--dry-run")
		cmd.Dir, cmd.Stdin = tree, strings.NewReader(strings.Join(lines[len(list):], ""))
		out, err := cmd.Output()
		parts := bytes.Split(out, []byte("Request:\n"))
		for _, part := range parts[1:] {
			list = append(list, decodeRequest(t, part))
		}
		if len(list) < len(lines) {
			require.Error(t, err, "rpc.py ended before all commands were read")
			refused++
			require.Less(t, refused, 30, "rpc.py refuses too many commands, among them %s", lines[len(list)])
			list = append(list, nil)
		}
	}
	return list
}

// dryRunAlone returns the requests that rpc.py would send for one command in a shell. It returns
// nil if rpc.py refuses the command.
func dryRunAlone(t *testing.T, tree string, c madeCall) *request {
	t.Helper()
	cmd := exec.Command("sh", "-c", "scripts/rpc.py --dry-run "+c.line)
	cmd.Dir = tree
	out, _ := cmd.Output()
	_, sent, found := bytes.Cut(out, []byte("Request:\n"))
	if !found {
		return nil
	}
	return decodeRequest(t, sent)
}

func decodeRequest(t *testing.T, text []byte) *request {
	t.Helper()
	var r request
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	require.NoError(t, dec.Decode(&r), "%s", text)
	return &r
}

// argumentsOf returns a line for each command, with its words as the shell passes them to a
// program, quoted for Python's shlex.
func argumentsOf(t *testing.T, calls []madeCall) []string {
	t.Helper()
	var script strings.Builder
	script.WriteString("call() { printf '%s\\0' \"$@\"; printf '\\001'; }\n")
	for _, c := range calls {
		script.WriteString("call " + c.line + "\n")
	}
	shell := exec.Command("sh")
	shell.Stdin = strings.NewReader(script.String())
	out, err := shell.Output()
	require.NoError(t, err)
	commands := strings.Split(strings.TrimSuffix(string(out), "\001"), "\001")
	require.Len(t, commands, len(calls))
	lines := make([]string, len(commands))
	for i, words := range commands {
		for _, word := range strings.Split(strings.TrimSuffix(words, "\000"), "\000") {
			lines[i] += "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "' "
		}
		lines[i] += "\n"
	}
	return lines
}
