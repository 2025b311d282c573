package main

import (
	"os"
	"strings"
	"unsafe"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/service"
)

// scriptCommand is the subcommand that emulates rpc_http_proxy.py. The script's command line has no
// subcommand, so main inserts scriptCommand.
const scriptCommand = "rpc-http-proxy"

func newScript() *cobra.Command {
	var s config.Script
	cmd := &cobra.Command{
		Use:    scriptCommand + " HOST PORT USER PASSWORD [-s SOCK] [-c CERT]",
		Short:  "Serve with the command line of SPDK's rpc_http_proxy.py",
		Hidden: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 4 {
				return usage("give HOST PORT USER PASSWORD [-s SOCK] [-c CERT], as for rpc_http_proxy.py, or a command: see `spdk-proxy --help`")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			s.Host, s.Port, s.User = args[0], args[1], args[2]
			s.Password = strings.Clone(args[3])
			hide(args[3])
			c, err := s.Config()
			if err != nil {
				return err
			}
			return service.Run(versionOnly(), c, nil)
		},
	}
	cmd.Flags().StringVarP(&s.Socket, "socket", "s", "/var/tmp/spdk.sock", "path of spdk_tgt's socket")
	cmd.Flags().StringVarP(&s.Cert, "cert", "c", "", "PEM file with certificate and key")
	return cmd
}

// hide overwrites an argument in the memory from which the kernel shows command lines to other
// processes, such as ps. Go's os.Args refers to that memory (runtime.goargs), and so does secret
// unless it is a copy.
func hide(secret string) {
	for _, a := range os.Args {
		if len(secret) > 0 && unsafe.StringData(a) == unsafe.StringData(secret) {
			memory := unsafe.Slice(unsafe.StringData(a), len(a))
			for i := range memory {
				memory[i] = 'x'
			}
		}
	}
}
