package main

import (
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/service"
)

const defaultKeys = "/var/lib/spdk-keys"

func newKeepKeys() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "keep-keys",
		Short: "Store key files for a proxy that does not run as spdk_tgt's user",
		Long: `Handle one request of the running service on standard input, which systemd connects
to it (spdk-proxy-keys.socket): add, remove or list key files in one directory.
spdk_tgt accepts only files of its own user, so run this as that user. Keys of
spdk-proxy@NAME.service, whose socket is /run/spdk-proxy-keys@NAME.sock, are stored
in the subdirectory NAME.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			folder, err := keys.OpenFolder(filepath.Join(dir, string(askedInstance(os.Stdin))))
			if err != nil {
				return err
			}
			return keys.Keep(os.Stdin, folder)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultKeys, "directory of the keys")
	return cmd
}

// askedInstance returns the instance to which the connected socket belongs.
func askedInstance(connection *os.File) service.Instance {
	conn, err := net.FileConn(connection)
	if err != nil {
		return "" // not a socket
	}
	defer func() { _ = conn.Close() }() // conn is a duplicate
	i, _ := service.InstanceOfKeys(conn.LocalAddr().String())
	return i
}
