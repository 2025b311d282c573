package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/spdkgate/spdkgate/proxy"
)

func newServe() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve until told to stop",
		Long: `Serve the configuration until SIGTERM or SIGINT; calls under way are finished.

The configuration and the files that it names are read anew after they have
changed, after SIGHUP, and by ` + "`spdk-proxy reload`" + `: users, roles, timeouts, limits
of requests and the certificate change without a call being dropped; what else
has changed takes a restart. A configuration with a mistake is refused, and the
old one stays, as the log and the service's status say.

A socket that systemd passes is served if it is at the configuration's address.

The log goes to standard error: one line for each call, whether it was allowed
or not, without secrets.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			load := func() (*proxy.Config, error) { return proxy.LoadConfig(path) }
			config, err := load()
			if err != nil {
				return err
			}
			return serve(config, load)
		},
	}
	cmd.Flags().StringVar(&path, "config", defaultConfig, "configuration file")
	return cmd
}

// serve runs a proxy with a configuration; load reads it anew, nil if it cannot be.
func serve(config *proxy.Config, load func() (*proxy.Config, error)) error {
	log := proxy.NewLogger(os.Stderr, config.Log)
	warn(log, config)
	server, err := proxy.NewServer(config, proxy.Options{Log: log})
	if err != nil {
		return err
	}
	listener, err := listen(server, config.Listen)
	if err != nil {
		return err
	}
	asked, err := openControl()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	notify := manager{log}
	reloader := reloader{server: server, load: load, log: log, notify: notify, files: watchFiles(filesOf(config, load), log)}
	go reloader.run(ctx, hangups, asked)
	notify.ready()
	go notify.watchdog(ctx, server.Alive)
	context.AfterFunc(ctx, func() {
		stop() // a second signal ends it at once
		notify.stopping()
	})
	return server.Serve(ctx, listener)
}

// filesOf are what a configuration was read from, if it was.
func filesOf(config *proxy.Config, load func() (*proxy.Config, error)) []string {
	if load == nil {
		return nil
	}
	return config.Files()
}

func warn(log *slog.Logger, config *proxy.Config) {
	for _, warning := range config.Warnings() {
		log.Warn("configuration", "warning", warning)
	}
}
