package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/spdkgate/spdkgate/proxy/service"
)

func newProfile() *cobra.Command {
	var seconds int
	var selected instance
	cmd := &cobra.Command{
		Use:   "profile NAME > FILE",
		Short: "Record a profile of the running service",
		Long: `Write a profile of the running service to standard output:

  cpu         use of CPU time during --seconds
  trace       execution trace of --seconds, for ` + "`go tool trace`" + `
  heap        memory in use
  allocs      memory allocated since the start
  goroutines  stacks of all goroutines, as text

Run it as root on the service's host: only root and the service can open the socket
(debug in the service's runtime directory). The service records nothing otherwise.`,
		Example: `  spdk-proxy profile cpu --seconds 30 > cpu.pprof && go tool pprof -top cpu.pprof
  spdk-proxy profile goroutines | less`,
		ValidArgs: service.Profiles(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(service.Profiles(), args[0]) {
				return usage("name one profile: %s", strings.Join(service.Profiles(), ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if seconds < 1 || seconds > 600 {
				return usage("--seconds must be 1 to 600")
			}
			if args[0] != "goroutines" && term.IsTerminal(int(os.Stdout.Fd())) {
				return usage("a profile is binary data: write it to a file, as in `spdk-proxy profile %s > %s.pprof`", args[0], args[0])
			}
			return service.Profile(cmd.Context(), selected.Instance, args[0], seconds, os.Stdout)
		},
	}
	cmd.Flags().IntVar(&seconds, "seconds", 30, "how long to record")
	selected.addTo(cmd.Flags())
	return cmd
}
