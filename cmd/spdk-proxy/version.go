package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the SPDK releases that it supports",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

// versionLine is the output of `spdk-proxy version` and `spdk-proxy --version`.
func versionLine() string {
	return fmt.Sprintf("spdk-proxy %s, %d methods of SPDK from %s on\n", versionText(), len(rpcschema.Default().OfSPDK()), rpcschema.Oldest)
}

// version is set by the linker. If it is empty, versionOnly returns the version recorded by the Go
// toolchain.
var version string

func versionText() string { return versionOnly() + " " + runtime.Version() }

func versionOnly() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(version, info.Main.Version)
	}
	return cmp.Or(version, "(unknown)")
}
