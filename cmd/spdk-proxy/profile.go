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
	cmd := &cobra.Command{
		Use:   "profile NAME > FILE",
		Short: "Look into the running service: where its time and memory go",
		Long: `Write a profile of the running service to standard output:

  cpu         where its processor time goes, over --seconds
  trace       what happens in it, over --seconds; for ` + "`go tool trace`" + `
  heap        what its memory is taken up by
  allocs      what has taken memory since it started
  goroutines  what each part of it waits for, as text

For root, on the host that it runs on: the socket that it asks, debug in the
service's runtime folder, is nobody else's. Nothing is recorded unless asked for.`,
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
				return usage("a profile is no text: send it to a file, as in `spdk-proxy profile %s > %s.pprof`", args[0], args[0])
			}
			return service.Profile(cmd.Context(), args[0], seconds, os.Stdout)
		},
	}
	cmd.Flags().IntVar(&seconds, "seconds", 30, "how long to watch")
	return cmd
}
