package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/terminal"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func newStatus() *cobra.Command {
	var o callOptions
	var watch bool
	var interval time.Duration
	output := "text"
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show on one screen how full and how busy the storage server is",
		Long: `Show on one screen: release and uptime of the target, its lvstores with what is
used (#), provisioned to volumes (-) and free (.), volumes, exports, connections, load,
tenants' quotas, users' calls, warnings, and the user's own limits on calls. A user
with a tenant sees the tenant's quota, what is used of it, and which names the tenant
may use.

The figures are read through a proxy (--url) or at a socket (--socket), which is the
proxy's listen_unix or the target's own. The built-in roles admin and read-only may
read all of them; what a user may not read is missing, and named.`,
		Example: `  spdk-proxy status
  spdk-proxy status --watch
  spdk-proxy status -o json | jq '.lvstores[] | {name, free_bytes}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, known := statusFormats[output]
			switch {
			case !known:
				return usage("--output must be text, json or yaml")
			case watch && interval < time.Second:
				return usage("--interval must be at least 1s")
			}
			ctx, caller, end, err := o.begin(cmd)
			if err != nil {
				return err
			}
			defer end()
			r := &remote{caller: caller, timeout: o.timeout, reader: figures.NewReader(rpcschema.Default())}
			for {
				s, err := r.status(ctx)
				if err != nil {
					return err
				}
				if err := r.addTenants(ctx, s); err != nil {
					return err
				}
				if err := r.addLimits(ctx, s); err != nil {
					return err
				}
				text, err := write(s)
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				if output == "text" {
					out = printable.Raw(out) // the page contains color sequences, and escapes names itself
				}
				if err := refresh(out, text, watch && output == "text"); err != nil || !watch {
					return err
				}
				if !pause(ctx, interval) {
					return nil
				}
			}
		},
	}
	o.addTo(cmd)
	f := cmd.Flags()
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for each response")
	f.StringVarP(&output, "output", "o", output, "text, json or yaml")
	f.BoolVar(&watch, "watch", false, "refresh until interrupted")
	f.DurationVar(&interval, "interval", 5*time.Second, "time between two refreshes")
	completeValues(cmd, "output", "text", "json", "yaml")
	return cmd
}

var statusFormats = map[string]func(s *terminal.Status) ([]byte, error){
	"text": func(s *terminal.Status) ([]byte, error) { return []byte(thisPage().Status(s)), nil },
	"json": (*terminal.Status).JSON,
	"yaml": (*terminal.Status).YAML,
}

// thisPage returns the page format for standard output: as wide as the terminal, with colors unless
// $NO_COLOR is set.
func thisPage() terminal.Page {
	out := int(os.Stdout.Fd())
	if !term.IsTerminal(out) {
		return terminal.Page{}
	}
	width, _, err := term.GetSize(out)
	if err != nil || width <= 0 {
		width, _ = strconv.Atoi(cmp.Or(os.Getenv("COLUMNS"), "80"))
	}
	return terminal.Page{Width: width, Colours: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// refresh writes a page. If again is true, it replaces the previous page on the terminal.
func refresh(out io.Writer, text []byte, again bool) error {
	if again && term.IsTerminal(int(os.Stdout.Fd())) {
		text = append([]byte("\x1b[H\x1b[2J"), text...)
	}
	_, err := out.Write(text)
	return err
}

// pause waits for the duration d. It returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// A remote is a target that is reached through a proxy or directly at a socket.
type remote struct {
	caller  spdkrpc.Caller
	timeout time.Duration
	reader  *figures.Reader
	all     bool // whether to read the I/O of a tenant's other bdevs as well
	io      bool // whether to read the I/O of a tenant's volumes
}

func (r *remote) ask(ctx context.Context, method string, params map[string]any) (result json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var argument any
	if params != nil {
		argument = params
	}
	err = r.caller.Call(ctx, method, argument, &result)
	return result, err
}

// read reads the figures. It fails if the proxy is unreachable or refuses the user, but not if the
// target is unreachable or waiting for framework_start_init.
func (r *remote) read(ctx context.Context) (*figures.Figures, error) {
	bounded, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	release, err := spdkrpc.NewClient(r.caller).Release(bounded)
	t := figures.Target{Up: err == nil, Phase: "runtime", Release: release, Ask: r.ask}
	if r.io {
		t.Ask = func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
			if method == iostatMethod && params == nil {
				return r.askIO(ctx, release)
			}
			return r.ask(ctx, method, params)
		}
	}
	if err != nil {
		if _, through := r.caller.(*spdkrpc.HTTPS); !through || !targetDown(err) {
			return nil, err
		}
		t.Phase = "unreachable"
		return r.reader.Read(ctx, t), nil
	}
	if _, err := r.ask(ctx, "bdev_lvol_get_lvstores", nil); spdkrpc.KindOf(err) == spdkrpc.WrongState {
		t.Up, t.Phase = false, "startup"
	}
	return r.reader.Read(ctx, t), nil
}

// status reads the data for the status page. The proxy's metrics are omitted if there is no proxy,
// or if the user is not permitted to read them.
func (r *remote) status(ctx context.Context) (*terminal.Status, error) {
	f, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	var metrics string
	raw, err := r.ask(ctx, "spdkgate_get_metrics", nil)
	if err == nil {
		err = json.Unmarshal(raw, &metrics)
	}
	if err != nil && spdkrpc.KindOf(err) != spdkrpc.MethodNotFound {
		f.Failures = append(f.Failures, figures.Failure{Method: "spdkgate_get_metrics", Err: err})
	}
	s, err := terminal.NewStatus(f, metrics)
	if err != nil {
		return nil, fmt.Errorf("compile the status: %w", err)
	}
	return s, nil
}

// addTenants adds the tenants that the user may see. There are none if there is no proxy, or if the
// proxy is too old to report them.
func (r *remote) addTenants(ctx context.Context, s *terminal.Status) error {
	if !s.Up {
		return nil
	}
	raw, err := r.ask(ctx, "spdkgate_get_tenants", nil)
	switch {
	case spdkrpc.KindOf(err) == spdkrpc.MethodNotFound:
		return nil
	case err != nil:
		s.AddFailure("spdkgate_get_tenants", err)
		return nil
	}
	var list []terminal.Tenant
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("read the tenants: %w", err)
	}
	s.AddTenants(list)
	return nil
}

// addLimits adds the user's own limits. There are none if there is no proxy, or if the proxy is too
// old to report them.
func (r *remote) addLimits(ctx context.Context, s *terminal.Status) error {
	raw, err := r.ask(ctx, "spdkgate_get_limits", nil)
	switch {
	case spdkrpc.KindOf(err) == spdkrpc.MethodNotFound, spdkrpc.KindOf(err) == spdkrpc.Unreachable:
		return nil
	case err != nil:
		s.AddFailure("spdkgate_get_limits", err)
		return nil
	}
	var limits terminal.Limits
	if err := json.Unmarshal(raw, &limits); err != nil {
		return fmt.Errorf("read the limits: %w", err)
	}
	s.AddLimits(limits)
	return nil
}
