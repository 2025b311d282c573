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
		Short: "Keep the files of keys for a proxy that is not spdk_tgt's user",
		Long: `Answer one question of the running service on standard input, which systemd connects
with it (spdk-proxy-keys.socket): place, remove or list files of keys, in one
folder. spdk_tgt takes only files of its own user, so this must be run as that.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			folder, err := keys.OpenFolder(dir)
			if err != nil {
				return err
			}
			return keys.Keep(os.Stdin, folder)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultKeys, "folder")
	return cmd
}
