package main

import (
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/grant"
)

func newGrantSocket() *cobra.Command {
	var group string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "grant-socket [SOCKET]",
		Short: "Let a group open spdk_tgt's socket",
		Long: `Let a group open spdk_tgt's socket, which is otherwise open only to spdk_tgt's own
user. SPDK creates the socket at each start, so run this in spdk_tgt's unit
(ExecStartPost=) or with a path unit, as the user of spdk_tgt. The command changes
nothing but a socket that this user owns. If there is no socket, it does nothing,
or waits until a process listens there (--wait).`,
		Example: `  spdk-proxy grant-socket --wait 10m /var/tmp/spdk.sock`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.MaximumNArgs(1)(cmd, args); err != nil {
				return usage("%w", err)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			path := "/var/tmp/spdk.sock"
			if len(args) == 1 {
				path = args[0]
			}
			gid, err := groupID(group)
			if err != nil {
				return err
			}
			return grant.Socket(path, gid, wait)
		},
	}
	cmd.Flags().StringVar(&group, "group", "spdk-rpc", "name or number of the group")
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait until a process listens there")
	return cmd
}

func groupID(group string) (int, error) {
	if gid, err := strconv.ParseUint(group, 10, 31); err == nil {
		return int(gid), nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, usage("--group: %w: systemd-sysusers creates it from sysusers.d/spdk-proxy.conf", err)
	}
	return strconv.Atoi(g.Gid)
}

// userIDs returns a user's UID and primary GID.
func userIDs(flag, name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if _, number := strconv.ParseUint(name, 10, 31); number == nil {
		u, err = user.LookupId(name)
	}
	if err != nil {
		return 0, 0, usage("%s: %w: name the user that spdk_tgt runs as", flag, err)
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, usage("%s: %s has no number: %w", flag, name, err)
	}
	if gid, err = strconv.Atoi(u.Gid); err != nil {
		return 0, 0, usage("%s: the group of %s has no number: %w", flag, name, err)
	}
	return uid, gid, nil
}
