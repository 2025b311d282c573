package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/service"
	"github.com/spdkgate/spdkgate/proxy/terminal"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// maxFetched is the maximum number of files that the other host may list.
const maxFetched = 10_000

func savedFetch() *cobra.Command {
	var o callOptions
	var keep int
	cmd := &cobra.Command{
		Use:   "fetch DIR",
		Short: "Copy the saved configurations of another host",
		Long: `Copy the saved configurations of a proxy on another host (--url) into a directory of this
host. Files that are there already stay, and are kept when the other host no longer has
them; of previous versions, up to --keep. Run it from a timer, with a directory for each
proxy. The copies have the format of target.save.dir, so ` + "`spdk-proxy saved --dir DIR list`" + `
and ` + "`spdk-proxy saved --dir DIR diff`" + ` read them.

The user's roles must allow spdkgate_config_list_saved and spdkgate_config_get_saved
without hiding secrets. The files contain secrets: DIR must be accessible only to its
owner. The exit code is 0 if DIR now has all files of the other host.`,
		Example: `  spdk-proxy saved fetch /srv/spdk-saved/storage1 --url https://storage1:9009 --ca tls.crt --token-file backup.token`,
		Args:    betweenArgs(1, 1, "a directory for the copies"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			_, owned := service.OwnerOf(dir)
			switch {
			case cmd.Flags().Changed("dir") || cmd.Flags().Changed("instance"):
				return usage("--dir and --instance name a directory of this host's proxy: give the directory for the copies as an argument")
			case o.socket != "":
				return usage("a target has no saved configurations: give --url of a proxy instead of --socket")
			case keep < 1:
				return usage("--keep must be at least 1")
			case owned:
				return usage("%s belongs to a proxy of this host: name another directory for the copies", dir)
			}
			ctx, caller, end, err := o.begin(cmd)
			if err != nil {
				return err
			}
			defer end()
			folder, err := persist.OpenFolder(args[0], keep)
			if err != nil {
				return err
			}
			copied, there, err := fetchSaved(ctx, spdkrpc.NewClient(caller), folder)
			fmt.Fprintf(cmd.OutOrStdout(), "%s copied to %s, %d unchanged\n", terminal.Plural(copied, "file"), args[0], there)
			return err
		},
	}
	o.addTo(cmd)
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait for each file")
	cmd.Flags().IntVar(&keep, "keep", 1000, "number of previous versions to keep")
	return cmd
}

// fetchSaved copies the files that the local directory lacks. If a file cannot be copied,
// fetchSaved continues with the next file.
func fetchSaved(ctx context.Context, from *spdkrpc.Client, folder *persist.Folder) (copied, there int, err error) {
	list, err := from.SpdkgateConfigListSaved(ctx)
	if err != nil {
		return 0, 0, err
	}
	if len(list) > maxFetched {
		return 0, 0, fmt.Errorf("the other host lists %d saved configurations, but at most %d are copied: remove files that were set aside there", len(list), maxFetched)
	}
	var wrong []error
	for _, file := range list {
		if old, err := folder.Text(file.Name); err == nil && old.Sum() == file.Sha256 {
			there++
			continue
		}
		stored, err := fetchFile(ctx, from, folder, file)
		switch {
		case errors.Is(err, spdkrpc.NoSuchDevice): // removed after it was listed
		case err != nil:
			wrong = append(wrong, fmt.Errorf("%s: %w", file.Name, err))
		case stored:
			copied++
		default:
			there++
		}
	}
	return copied, there, errors.Join(wrong...)
}

func fetchFile(ctx context.Context, from *spdkrpc.Client, folder *persist.Folder, file spdkrpc.ProxySavedFile) (stored bool, err error) {
	if file.Sha256 == "" {
		return false, errors.New("the other host cannot read this file: check its owner and size there")
	}
	got, err := from.SpdkgateConfigGetSaved(ctx, spdkrpc.SpdkgateConfigGetSavedParams{Name: file.Name})
	if err != nil {
		return false, err
	}
	at, err := time.Parse(time.RFC3339, got.SavedAt)
	if err != nil {
		return false, fmt.Errorf("the time in the response is malformed: %w", err)
	}
	text := persist.Text{Name: file.Name, SavedAt: at, Bytes: []byte(got.Text)}
	if got.Name != file.Name || text.Sum() != got.Sha256 {
		return false, errors.New("the checksum of the text differs from the one that the proxy reports: the user's roles hide secrets. Use a role of your own that allows spdkgate_config_get_saved")
	}
	return folder.Store(text)
}
