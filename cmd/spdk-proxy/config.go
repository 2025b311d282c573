package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/service"
	"github.com/spdkgate/spdkgate/proxy/terminal"
	"github.com/spdkgate/spdkgate/rpcschema"
)

const stateVariable = "STATE_DIRECTORY"

func newCheckConfig() *cobra.Command {
	var secrets string
	cmd := &cobra.Command{
		Use:   "check-config [FILE]",
		Short: "Check a configuration and report all mistakes",
		Long: `Check a configuration and report all mistakes, without serving it. FILE defaults to
` + defaultConfig + `. The exit code is 0 if it has no mistakes; warnings do not
change it. For the configuration of a service, which is ` + defaultConfig + ` or
/etc/spdk-proxy/NAME.yaml of spdk-proxy@NAME.service, the command also checks that ` + "`listen`" + `,
` + "`listen_unix`" + ` and the service's socket unit have the same address and path, and warns of files that the user
spdk-proxy cannot read.

Outside the service, $CREDENTIALS_DIRECTORY/secrets_NAME in the configuration stands
for the file NAME in the directory of secrets (--secrets).`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.MaximumNArgs(1)(cmd, args); err != nil {
				return usage("%w", err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path := defaultConfig
			if len(args) == 1 {
				path = args[0]
			}
			if secrets == "" {
				secrets = filepath.Join(filepath.Dir(path), "secrets")
			}
			remove, err := linkSecrets(secrets)
			if err != nil {
				return err
			}
			defer remove()
			instance, ofService := service.InstanceOf(path)
			if _, set := os.LookupEnv(stateVariable); ofService && !set { // as systemd does for the service
				if err := os.Setenv(stateVariable, instance.StateDirectory()); err != nil {
					return err
				}
			}
			c, err := proxy.CheckFile(path, rpcschema.Default())
			if err != nil {
				return err
			}
			warnings := c.Warnings()
			if ofService {
				more, err := service.Check(c, instance)
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				warnings = append(warnings, more...)
			}
			if c.Target.Save.Dir == "" {
				warnings = append(warnings, "target.save is missing: the target's configuration is not saved, and is lost when spdk_tgt ends. Set target.save.dir, as the packaged configuration does")
			}
			if c.Target.Freeze.Dir == "" {
				warnings = append(warnings, "target.freeze is missing: snapshots of volumes in use are refused. Set target.freeze.dir, as the packaged configuration does")
			}
			for _, warning := range warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %s, %s\n", path, terminal.Plural(len(c.Users), "user"), terminal.Plural(len(c.Roles), "role"))
			return nil
		},
	}
	cmd.Flags().StringVar(&secrets, "secrets", "", "directory of secrets (default: secrets in the directory of FILE)")
	return cmd
}

// linkSecrets does what LoadCredential=secrets:DIRECTORY does in the service's unit, but with links
// instead of copies. It does nothing if systemd has already provided the secrets, or if the
// directory is missing. The returned function deletes the links.
func linkSecrets(dir string) (remove func(), err error) {
	const variable = "CREDENTIALS_DIRECTORY"
	remove = func() {}
	entries, err := os.ReadDir(dir)
	if os.Getenv(variable) != "" || errors.Is(err, fs.ErrNotExist) {
		return remove, nil
	}
	if err != nil {
		return remove, fmt.Errorf("read the directory of secrets: %w: run this as root", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return remove, fmt.Errorf("link the secrets: %w", err)
	}
	credentials, err := os.MkdirTemp("", "spdk-proxy-")
	if err != nil {
		return remove, fmt.Errorf("link the secrets: %w", err)
	}
	remove = func() { _ = os.RemoveAll(credentials) }
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(credentials, "secrets_"+e.Name())); err != nil {
			remove()
			return func() {}, fmt.Errorf("link the secrets: %w", err)
		}
	}
	return remove, os.Setenv(variable, credentials)
}

// noArgs is like cobra.NoArgs, but returns a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s accepts no arguments: see `%s --help`", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}
