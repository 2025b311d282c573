package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

func newCheckConfig() *cobra.Command {
	return &cobra.Command{
		Use:   "check-config [FILE]",
		Short: "Tell everything that is wrong with a configuration",
		Long: `Tell everything that is wrong with a configuration, without serving it. FILE is
` + defaultConfig + ` unless given. The exit code is 0 if it is sound; what is
allowed but should be known is told as a warning.`,
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
			config, err := proxy.LoadConfig(path)
			if err != nil {
				return err
			}
			if err := proxy.Check(config, rpcschema.Default()); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			for _, warning := range config.Warnings() {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is sound: %d users, %d roles\n", path, len(config.Users), len(config.Roles))
			return nil
		},
	}
}

// noArgs is cobra.NoArgs with the exit code of a mistake in the command line.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments: see `%s --help`", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}
