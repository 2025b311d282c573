package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const forged = "a\nb\t\r\u202e\u2066\u2028\x1b[2J\u009b"

// assertPrintable fails if a line of the output contains unsafe characters.
func assertPrintable(t *testing.T, output string) {
	t.Helper()
	assert.Contains(t, output, `\u202e`)
	for line := range strings.Lines(output) {
		line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "")
		assert.True(t, printable.Valid(line), "%q", line)
	}
}

// Every command inherits output escaping from the root command. A PersistentPreRun hook of its own
// would replace the root's hook.
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
	var out, errs bytes.Buffer
	root := command(&errs)
	visit(root, root)
	root.SetOut(&out)
	root.SetErr(&errs)
	root.AddCommand(&cobra.Command{Use: "probe", RunE: func(cmd *cobra.Command, _ []string) error {
		cmd.PrintErr(forged)
		_, err := cmd.OutOrStdout().Write([]byte(forged))
		return err
	}})
	root.SetArgs([]string{"probe"})
	require.NoError(t, root.Execute())
	assertPrintable(t, out.String())
	assertPrintable(t, errs.String())
	errs.Reset()
	printError(&errs, errors.New(forged))
	assertPrintable(t, errs.String())
}

func TestLogEscapesControlCharacters(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		log, err := logger(&b, "info", format)
		require.NoError(t, err)
		log.Info("volume lost", "volume", forged, "error", errors.New(forged), forged, "x")
		assert.Equal(t, 1, strings.Count(b.String(), "\n"), format)
		assertPrintable(t, b.String())
		if format == "json" {
			var line map[string]any
			require.NoError(t, json.Unmarshal(b.Bytes(), &line))
			assert.Equal(t, forged, line["volume"])
		}
	}
}

// A name that contains a newline does not start a new line of doctor's output.
func TestDoctorEscapesForgedNames(t *testing.T) {
	var b bytes.Buffer
	p := printer{out: &b}
	p.findings([]doctor.Finding{{Target: forged, Kind: doctor.Kind(forged), Object: forged, Problem: forged, Repair: forged, Command: forged}})
	p.result(result{Finding: doctor.Finding{Target: forged, Object: forged}, Error: forged})
	p.result(result{Finding: doctor.Finding{Target: forged, Object: forged}, Repaired: true})
	assert.Equal(t, 7, strings.Count(b.String(), "\n"), b.String())
	assertPrintable(t, b.String())
}

// The hostile target lists a volume whose name contains control characters.
func TestDoctorEscapesHostileTargetNames(t *testing.T) {
	rpc := newTarget(t)
	_, err := rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "pvc-" + forged, LvsName: new("lvs0"), SizeInMiB: 4})
	require.NoError(t, err)
	for _, args := range [][]string{{"doctor", "--volumes=-"}, {"doctor", "--volumes=-", "--json"}, {"inventory"}} {
		root := command(new(bytes.Buffer))
		var out bytes.Buffer
		root.SetIn(strings.NewReader("# none\nt0:5d1fa6ea-6cd5-4a51-8a0b-3f1b47a5d9f0"))
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append(args, map[bool][]string{true: {"--wait=0"}}[args[0] == "doctor"]...))
		_ = root.ExecuteContext(t.Context()) // findings result in an error
		assertPrintable(t, out.String())
	}
}
