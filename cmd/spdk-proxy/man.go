//go:build man

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Only `make man` compiles this file. Released programs omit it, because it needs a Markdown
// parser.
func init() {
	extraCommands = append(extraCommands, &cobra.Command{
		Use:    "man-pages DIR",
		Short:  "Write a man page for each command",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := newRoot()
			root.DisableAutoGenTag = true
			// GenManTree takes the date from SOURCE_DATE_EPOCH.
			return doc.GenManTree(root, &doc.GenManHeader{Title: "SPDK-PROXY", Section: "1", Source: "spdk-proxy " + versionOnly(), Manual: "SPDKGate"}, args[0])
		},
	})
}
