package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/keys"
)

func newHandOverKeys() *cobra.Command {
	var dir, to string
	cmd := &cobra.Command{
		Use:   "hand-over-keys",
		Short: "Give the files of keys to the user that spdk_tgt runs as",
		Long: `Give the folder of keys and the files in it to the user that spdk_tgt runs as: SPDK
takes only files of its own user, and a host whose key it does not take cannot
connect. It is for spdk_tgt's unit (ExecStartPre=), run as root, so that keys that
were placed when spdk_tgt was another user are taken. Nothing but regular files
that hold a key changes hands, and no link is followed. It may be repeated.`,
		Example: `  spdk-proxy hand-over-keys --to spdk`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" {
				return usage("--to is missing: name the user that spdk_tgt runs as")
			}
			uid, gid, err := userIDs("--to", to)
			if err != nil {
				return err
			}
			given, err := keys.HandOver(dir, uid, gid)
			if given > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%d keys belong to %s now\n", given, to)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultKeys, "folder")
	cmd.Flags().StringVar(&to, "to", "", "name or number of the user")
	return cmd
}
