package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

func assertPrintable(t *testing.T, output string) {
	t.Helper()
	assert.Contains(t, output, `\u202e`)
	for line := range strings.Lines(output) {
		assert.True(t, printable.Valid(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "")), "%q", line)
	}
}

// The cluster and the controller return hostile names and messages.
const hostileCluster = `case "$*" in
*"--raw /api/v1/persistentvolumes"*) echo '{"items": [{"metadata": {"name": "pv-1\u202e\u009b"}, "spec": {"capacity": {"storage": "1Gi"}, "claimRef": {"namespace": "shop\u001b[2J", "name": "data\u000aforged"},
  "csi": {"driver": "csi.spdk.io", "volumeHandle": "t0:11111111-1111-4111-8111-111111111111"}}, "status": {"phase": "Bound"}}]}' ;;
*"--raw /apis/storage.k8s.io/v1/csinodes"*) echo '{"items": [{"metadata": {"name": "worker\u2028\u202e"}, "spec": {"drivers": [{"name": "csi.spdk.io"}]}}]}' ;;
*"spdk-csi inventory"*) echo '{"targets": [{"name": "t0", "stores": [{"name": "lvs0\u202e\u2066"}], "volumes": [{"id": "t0:11111111-1111-4111-8111-111111111111", "store": "lvs0\u202e"}]}]}' ;;
*"spdk-csi doctor"*|*"spdk-csi fence"*) printf 'a \342\200\256 \033[2J\n'; printf 'a \342\200\256 \033[2J\n' >&2 ;;
*--raw*) echo '{"items": []}' ;;
esac
`

func TestOutputEscapesHostileNames(t *testing.T) {
	kubectlOf(t, hostileCluster)
	for _, args := range [][]string{
		{"volumes"}, {"volumes", "-o", "wide", "--live"}, {"volumes", "-o", "json", "--live"}, {"volumes", "-o", "yaml", "--live"},
		{"nodes", "--live=false"}, {"nodes", "--live=false", "-o", "json"},
		{"capacity", "--live"}, {"doctor", "--targets-only"}, {"fence", "worker-3"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			out, notes, err := run(t, args...)
			require.NoError(t, err)
			assertPrintable(t, out)
			assert.NotContains(t, out+notes, "\x1b")
			if len(args) == 1 {
				assert.Equal(t, 2, strings.Count(out, "\n"), "a name cannot begin a line of its own: %s", out)
			}
		})
	}
}

// Every command inherits output escaping from the root command. A PersistentPreRun hook of its own
// would replace the root's hook.
func TestEveryCommandEscapesItsOutput(t *testing.T) {
	root := command()
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd != root {
			assert.Nil(t, cmd.PersistentPreRun, cmd.CommandPath())
			assert.Nil(t, cmd.PersistentPreRunE, cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root)
	var b bytes.Buffer
	printError(&b, errors.New("a\u202e\u009b"))
	assertPrintable(t, b.String())
}
