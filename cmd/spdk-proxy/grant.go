package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func newGrantSocket() *cobra.Command {
	var group string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "grant-socket [SOCKET]",
		Short: "Let a group open spdk_tgt's socket",
		Long: `Let a group, and nobody else, open the socket that spdk_tgt has made for its own
user alone. SPDK makes it anew at each start, so this is for spdk_tgt's unit
(ExecStartPost=) or for a path unit, run as the user of spdk_tgt. What is not a
socket of that very user is left alone, whatever stands at the path. Without a
socket nothing is done, unless told to wait for it.`,
		Example: `  spdk-proxy grant-socket --wait 1m /var/tmp/spdk.sock`,
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
			return grantInTime(path, gid, wait)
		},
	}
	cmd.Flags().StringVar(&group, "group", "spdk-rpc", "name or number of the group")
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for the socket")
	return cmd
}

func groupID(group string) (int, error) {
	if gid, err := strconv.ParseUint(group, 10, 31); err == nil {
		return int(gid), nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, usage("--group: %w: systemd-sysusers makes it of sysusers.d/spdk-proxy.conf", err)
	}
	return strconv.Atoi(g.Gid)
}

func grantInTime(path string, gid int, wait time.Duration) error {
	for end := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		err := grant(path, gid)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if wait == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w after %s: does spdk_tgt listen elsewhere (its -r)?", err, wait)
		}
	}
}

// grant gives the socket to the group. The folder may be everybody's, as
// /var/tmp is, so it holds on to the one thing that it has looked at.
func grant(path string, gid int) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "grant", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "grant", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("grant %s: it is not a socket of user %d, who runs this: nothing was changed; find out who put it there", path, os.Geteuid())
	}
	const mode = 0o660
	if int(st.Gid) == gid && st.Mode&0o777 == mode {
		return nil // no event for whoever watches it
	}
	if err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "grant: change the group of", Path: path, Err: err}
	}
	// What was opened by O_PATH has no fchmod on older kernels.
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode); err != nil {
		return &fs.PathError{Op: "grant: change the mode of", Path: path, Err: err}
	}
	return nil
}
