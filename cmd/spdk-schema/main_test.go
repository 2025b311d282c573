package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// schema runs spdk-schema in this process.
func schema(args ...string) (string, error) {
	cmd := command()
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{}, args...)) // with nil, cobra would use the test binary's arguments
	err := cmd.Execute()
	return out.String(), err
}

func TestCommandsPrintResultsAndUsageErrors(t *testing.T) {
	out, err := schema("list", "bdev_lvol_cre*")
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^bdev_lvol_create +Create`, out)
	out, err = schema("drift", "--help")
	require.NoError(t, err)
	assert.Contains(t, out, "  spdk-schema drift --socket", "its own name in the examples")
	assert.NotContains(t, out, "--url", "nothing about a proxy")
	_, err = schema("show", "no_such_method")
	require.Error(t, err)
	assert.Equal(t, exitUsage, exitCode(err))
	_, err = schema("list", "--no-such-flag")
	require.ErrorContains(t, err, "see `spdk-schema list --help`")
	assert.Equal(t, exitUsage, exitCode(err))
}

func TestDriftComparesALiveTarget(t *testing.T) {
	target, err := spdktest.Start(spdktest.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = target.Close() })
	out, err := schema("drift", "--socket", target.Socket())
	require.NoError(t, err, out)
	assert.Contains(t, out, "0 unexplained")
	_, err = schema("drift", "--socket", "/nonexistent/spdk.sock")
	require.ErrorContains(t, err, "/nonexistent/spdk.sock")
	assert.Equal(t, exitFailed, exitCode(err))
}

// Recordings and targets may contain any characters.
func TestOutputIsEscaped(t *testing.T) {
	cmd := command()
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.AddCommand(&cobra.Command{Use: "probe", RunE: func(cmd *cobra.Command, _ []string) error {
		_, err := cmd.OutOrStdout().Write([]byte("a\u202e\u009b\x1b\n"))
		return err
	}})
	cmd.SetArgs([]string{"probe"})
	require.NoError(t, cmd.Execute())
	assert.Equal(t, `a\u202e\u009b\u001b`+"\n", out.String())
}
