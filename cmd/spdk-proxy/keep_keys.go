package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/keys"
)

const defaultKeys = "/var/lib/spdk-keys"

func newKeepKeys() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "keep-keys",
		Short: "Store key files for a proxy that does not run as spdk_tgt's user",
		Long: `Handle one request of the running service on standard input, which systemd connects
to it (spdk-proxy-keys.socket): add, remove or list key files in one directory.
spdk_tgt accepts only files of its own user, so run this as that user.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			folder, err := keys.OpenFolder(dir)
			if err != nil {
				return err
			}
			return keys.Keep(os.Stdin, folder)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultKeys, "directory of the keys")
	return cmd
}
