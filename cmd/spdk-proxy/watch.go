package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// reconnectWait is how long watch waits before it reconnects.
const reconnectWait = 2 * time.Second

func newWatch() *cobra.Command {
	var o callOptions
	output, count := "text", 0
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print events of the target and the proxy as they happen",
		Long: `Print events as they happen: bdevs and volumes that come and go, a target that
stops answering or was restarted, lvstores and quotas that are nearly full,
certificates that expire. It first prints the conditions that last.

The command connects again when the connection ends, and continues where it was.
The user needs a role that allows notify_get_notifications.`,
		Example: `  spdk-proxy watch
  spdk-proxy watch -o json | jq -r 'select(.type == "target_down") | .text'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usage("--output must be text or json")
			}
			if o.socket != "" {
				return usage("events come from a proxy: give --url instead of --socket")
			}
			ctx, caller, end, err := o.begin(cmd)
			if err != nil {
				return err
			}
			defer end()
			p := &eventPrinter{out: cmd.OutOrStdout(), json: output == "json", left: count}
			return p.follow(ctx, caller.(*spdkrpc.HTTPS), cmd.ErrOrStderr())
		},
	}
	o.addTo(cmd)
	o.timeout = time.Minute // limits the time until the response begins
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	completeValues(cmd, "output", "text", "json")
	cmd.Flags().IntVar(&count, "count", 0, "exit after this many events; 0: never")
	return cmd
}

// An eventPrinter prints the events of a stream.
type eventPrinter struct {
	out  io.Writer
	json bool
	left int    // number of events to print; 0 means no limit
	last string // id of the last event
}

var errEnough = errors.New("the requested number of events was printed")

// follow prints events until ctx ends. It reconnects if the connection ends, but fails if the first
// attempt fails or the proxy refuses the user.
func (p *eventPrinter) follow(ctx context.Context, proxy *spdkrpc.HTTPS, log io.Writer) error {
	for first := true; ; first = false {
		body, err := proxy.Events(ctx, p.last)
		if err == nil {
			first = false
			err = p.print(body)
			_ = body.Close()
		}
		switch kind := spdkrpc.KindOf(err); {
		case ctx.Err() != nil, errors.Is(err, errEnough):
			return nil
		case first, kind == spdkrpc.Denied:
			return err
		}
		_, _ = fmt.Fprintf(log, "spdk-proxy: the stream has ended (%v); connecting again\n", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reconnectWait):
		}
	}
}

// print prints the events of a single stream until it ends.
func (p *eventPrinter) print(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		if name == "id" {
			p.last = value
		}
		if name != "data" {
			continue
		}
		if err := p.printOne(value); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

func (p *eventPrinter) printOne(data string) error {
	line := data
	if !p.json {
		var e struct {
			Time       time.Time
			Type, Text string
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		line = fmt.Sprintf("%s  %-16s  %s", e.Time.Local().Format(time.DateTime), printable.String(e.Type), printable.String(e.Text))
	}
	if _, err := fmt.Fprintln(p.out, line); err != nil {
		return err
	}
	if p.left--; p.left == 0 {
		return errEnough
	}
	return nil
}
