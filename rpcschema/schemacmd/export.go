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
as one JSON Schema (draft 2020-12) per method. Both are strict: objects in parameters
allow only the members that are described. A JSON Schema file describes the method's
parameters; #/$defs/result in it describes the result.

With --spdk-version, only what that release has is exported. Without it, everything is
exported, and members that some releases lack name the releases that have them.`,
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
	cmd.Flags().BoolVar(&own, "own", false, "include spdk-proxy's own methods")
	cmd.Flags().StringVar(&dir, "json-schema", "", "write one file per method, METHOD.json, to this directory, instead of an OpenRPC document")
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
