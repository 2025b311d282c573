package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/fleet"
	"github.com/spdkgate/spdkgate/proxy/terminal"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// attentionError reports how many of the servers need attention. It only sets the exit code; the
// reasons have already been printed.
type attentionError struct{ needing, of int }

func (e attentionError) Error() string {
	return fmt.Sprintf("%d of %s %s attention", e.needing, terminal.Plural(e.of, "storage server"), terminal.Needs(e.needing))
}

// These are the states of servers whose status cannot be read.
const (
	stateNoCredentials = "no-credentials"
	stateUnreachable   = "unreachable"
	stateUntrusted     = "untrusted"
	stateRefused       = "refused"
	stateNoResponse    = "no-response"
	stateFailed        = "failed"
)

func newFleet() *cobra.Command {
	var watch bool
	var interval time.Duration
	var bounds fleet.Bounds
	var serve string
	output := "text"
	cmd := &cobra.Command{
		Use:   "fleet FILE",
		Short: "Show which of several storage servers need attention",
		Long: `Show the storage servers that FILE lists, one line each, those first that need
attention: whether the server is up, the SPDK release, the proxy's version, free and
provisioned space of its lvstores, whether its configuration is saved, and when its
certificate expires. Below a server are its warnings, as spdk-proxy status shows them.

FILE is YAML. It names the files of credentials, and contains none:

  defaults: {ca_file: ca.pem, token_file: admin.token}
  servers:
    - {name: storage1, url: "https://storage1:9009"}
    - {name: storage2, url: "https://storage2:9009", user: admin, password_file: storage2.password}

A server that does not respond is shown after
--timeout. Up to --parallel servers are read at the same time, so the others do not wait
unless more servers than that do not respond.

--serve shows the same on a web page that is refreshed, and prints its address, which
contains a secret. Only browsers on this host can open it. The credentials stay in this
command.

Exit codes: 0 no server needs attention; 1 the command failed; 2 a mistake on the
command line or in FILE; 8 at least one server needs attention.`,
		Example: `  spdk-proxy fleet servers.yaml
  spdk-proxy fleet servers.yaml --watch
  spdk-proxy fleet servers.yaml --serve 8080
  spdk-proxy fleet servers.yaml -o json | jq -r '.servers[] | select(.attention) | .name'`,
		Args: betweenArgs(1, 1, "the file that lists the storage servers"),
		RunE: func(cmd *cobra.Command, args []string) error {
			write, known := fleetFormats[output]
			switch {
			case !known:
				return usage("--output must be text, json or yaml")
			case serve != "" && (watch || output != "text"):
				return usage("--serve cannot be combined with --watch or --output")
			case (watch || serve != "") && interval < time.Second:
				return usage("--interval must be at least 1s")
			case bounds.AtOnce < 1 || bounds.Each <= 0:
				return usage("--parallel and --timeout must be positive")
			}
			list, err := fleet.Load(args[0])
			if err != nil {
				return usageError{err}
			}
			var address *net.TCPAddr
			if serve != "" {
				if address, err = loopback(serve); err != nil {
					return err
				}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			servers := connectFleet(list, bounds.Each)
			defer servers.close()
			if address != nil {
				return servePage(ctx, cmd, address, interval, servers, bounds)
			}
			for {
				f := servers.read(ctx, bounds)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				text, err := write(f)
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				if output == "text" {
					out = printable.Raw(out) // the page contains color sequences, and escapes names itself
				}
				if err := refresh(out, text, watch && output == "text"); err != nil {
					return err
				}
				switch n := f.Attention(); {
				case !watch && n > 0:
					return attentionError{n, len(f.Servers)}
				case !watch, !pause(ctx, interval):
					return nil
				}
			}
		},
	}
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", output, "text, json or yaml")
	f.DurationVar(&bounds.Each, "timeout", 10*time.Second, "how long to wait for each server")
	f.IntVar(&bounds.AtOnce, "parallel", 256, "number of servers that are read at the same time")
	f.StringVar(&serve, "serve", "", "serve a web page at this port of 127.0.0.1, or at ADDRESS:PORT; 0 is a free port")
	f.BoolVar(&watch, "watch", false, "refresh until interrupted")
	f.DurationVar(&interval, "interval", 5*time.Second, "time between two refreshes")
	completeValues(cmd, "output", "text", "json", "yaml")
	return cmd
}

var fleetFormats = map[string]func(f *terminal.Fleet) ([]byte, error){
	"text": func(f *terminal.Fleet) ([]byte, error) { return []byte(thisPage().Fleet(f)), nil },
	"json": (*terminal.Fleet).JSON,
	"yaml": (*terminal.Fleet).YAML,
}

// A fleetServer is one server in a fleet, with its connection.
type fleetServer struct {
	fleet.Server
	caller closer
	remote *remote
	failed error // why there is no caller; otherwise nil
}

type fleetServers []fleetServer

// connectFleet creates a caller for each server, but opens no connections.
func connectFleet(list []fleet.Server, timeout time.Duration) fleetServers {
	all := make(fleetServers, len(list))
	for i, s := range list {
		all[i].Server = s
		o := callOptions{
			url: s.URL, user: s.User, passwordFile: s.PasswordFile, tokenFile: s.TokenFile, cert: s.CertFile, key: s.KeyFile,
			ca: s.CAFile, timeout: timeout, explicit: true, plaintext: s.InsecurePlaintext,
		}
		if all[i].caller, all[i].failed = o.caller(); all[i].failed == nil {
			all[i].remote = &remote{caller: all[i].caller, timeout: timeout, reader: figures.NewReader(rpcschema.Default())}
		}
	}
	return all
}

func (all fleetServers) close() {
	for _, s := range all {
		if s.caller != nil {
			_ = s.caller.Close()
		}
	}
}

// read reads the status of all servers.
func (all fleetServers) read(ctx context.Context, b fleet.Bounds) *terminal.Fleet {
	servers := make([]terminal.Server, len(all))
	fleet.Read(ctx, len(all), b, func(ctx context.Context, i int) error {
		if all[i].failed != nil {
			return all[i].failed
		}
		s, err := all[i].remote.status(ctx)
		if err == nil {
			servers[i] = terminal.NewServer(all[i].Name, all[i].URL, s, "", nil)
		}
		return err
	}, func(i int, err error) {
		state := stateOf(err)
		var file *spdkrpc.CredentialsFileError
		if errors.As(err, &file) {
			err = file // the failed call no longer matters
		}
		servers[i] = terminal.NewServer(all[i].Name, all[i].URL, nil, state, err)
	})
	return terminal.NewFleet(time.Now(), servers)
}

// stateOf summarizes, in a single word, why there is no status.
func stateOf(err error) string {
	var misused usageError
	var file *fs.PathError
	var credentials *spdkrpc.CredentialsFileError
	kind := spdkrpc.KindOf(err)
	switch {
	case errors.As(err, &misused), errors.As(err, &file), errors.As(err, &credentials):
		return stateNoCredentials
	case errors.Is(err, fleet.ErrNoAnswer):
		return stateNoResponse
	case errors.Is(err, spdkrpc.ErrNotProxy):
		return stateFailed
	case errors.Is(err, spdkrpc.ErrCertificate):
		return stateUntrusted
	case errors.Is(err, spdkrpc.ErrCredentials):
		return stateRefused
	}
	return cmp.Or(map[spdkrpc.Kind]string{spdkrpc.Denied: stateRefused, spdkrpc.Unreachable: stateUnreachable, spdkrpc.OutcomeUnknown: stateUnreachable}[kind], stateFailed)
}
