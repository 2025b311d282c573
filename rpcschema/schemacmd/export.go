package schemacmd

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema"
)

func newExport() *cobra.Command {
	var (
		r   ReleaseFlag
		own bool
		dir string
	)
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the schema as an OpenRPC document, or as JSON Schemas",
		Long: `Write the schema as an OpenRPC 1.3 document to standard output, or with --json-schema
as one JSON Schema (draft 2020-12) for each method. Both are strict: objects in
parameters refuse members that are not described. A method's JSON Schema is that of
its parameters; its result is at #/$defs/result.

With --spdk-version, only what that release has is exported. Without it, members that
some releases lack are in the document with the releases that have them.`,
		Example: `  PROGRAM export --spdk-version v26.05 > spdk.openrpc.json
  PROGRAM export --spdk-version v26.05 --json-schema schemas/`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keep := func(m *rpcschema.Method) bool { return own || m.ServedBy == "" }
			if dir != "" {
				return exportJSONSchemas(dir, r.Release, keep)
			}
			text, err := rpcschema.Default().Export(r.Release, keep)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	releaseFlag(cmd, &r)
	cmd.Flags().BoolVar(&own, "own", false, "also the methods that spdk-proxy answers by itself")
	cmd.Flags().StringVar(&dir, "json-schema", "", "folder to write METHOD.json files to, instead of an OpenRPC document")
	return cmd
}

func exportJSONSchemas(dir string, r rpcschema.Release, keep func(*rpcschema.Method) bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--json-schema: %w", err)
	}
	schemas, err := rpcschema.Default().JSONSchemas(r, keep)
	if err != nil {
		return err
	}
	for name, text := range schemas {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), text, 0o644); err != nil {
			return fmt.Errorf("--json-schema: %w", err)
		}
	}
	return nil
}
