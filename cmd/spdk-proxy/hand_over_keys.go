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
		Short: "Change the owner of key files to spdk_tgt's user",
		Long: `Change the owner of the directory of keys, and of the files in it, to the user that
spdk_tgt runs as. SPDK accepts only files of its own user, and a host cannot connect
if SPDK does not accept its key. Run this as root in spdk_tgt's unit (ExecStartPre=),
for keys that were added while spdk_tgt ran as another user. The command changes only
regular files that contain a key, and follows no link. It can be repeated.`,
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
				fmt.Fprintf(cmd.OutOrStdout(), "keys given to %s: %d\n", to, given)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultKeys, "directory of the keys")
	cmd.Flags().StringVar(&to, "to", "", "name or number of the user")
	return cmd
}
