package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy/fleet"
	"github.com/spdkgate/spdkgate/proxy/fleet/page"
	"github.com/spdkgate/spdkgate/proxy/terminal"
)

// loopback parses the address to listen on: a port, or a loopback address with a port.
func loopback(value string) (*net.TCPAddr, error) {
	if port, err := strconv.ParseUint(value, 10, 16); err == nil {
		return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)}, nil
	}
	host, text, err := net.SplitHostPort(value)
	if err != nil {
		return nil, usage("--serve must be a port, or a loopback address with a port, such as 127.0.0.1:8080")
	}
	port, err := strconv.ParseUint(text, 10, 16)
	ip := net.ParseIP(host)
	switch {
	case err != nil:
		return nil, usage("--serve: %s is not a port", text)
	case ip == nil || !ip.IsLoopback():
		return nil, usage("--serve: %s is not a loopback address. The page shows what your credentials can read, so it is served only to this host. From another host, use ssh -L", host)
	}
	return &net.TCPAddr{IP: ip, Port: int(port)}, nil
}

// servePage serves the storage servers as a web page until ctx ends.
func servePage(ctx context.Context, cmd *cobra.Command, address *net.TCPAddr, interval time.Duration, servers fleetServers, bounds fleet.Bounds) error {
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	handler := page.New(listener.Addr().(*net.TCPAddr), interval, func() *terminal.Fleet { return servers.read(ctx, bounds) })
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n", handler.URL())
	fmt.Fprintln(cmd.ErrOrStderr(), "open this address in a browser on this host. Anyone who knows it can read the page. Interrupt the command to end")
	ended := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer ended()
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}
