//go:build man

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// `make man` builds with this file. What is shipped does without: it would carry a
// Markdown parser.
func init() {
	extraCommands = append(extraCommands, &cobra.Command{
		Use:    "man-pages FOLDER",
		Short:  "Write a man page for each command",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := newRoot()
			root.DisableAutoGenTag = true
			// The date is SOURCE_DATE_EPOCH's.
			return doc.GenManTree(root, &doc.GenManHeader{Title: "SPDK-PROXY", Section: "1", Source: "spdk-proxy " + versionOnly(), Manual: "SPDKGate"}, args[0])
		},
	})
}
