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
SIGHUP reads the configuration and the certificate anew: users, roles, timeouts,
limits of requests and the certificate change without a call being dropped; what
else has changed takes a restart. A configuration with a mistake is refused, and
the old one stays.

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
	listener, err := server.Listen()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			reload(server, load, log)
		}
	}()
	notify := manager{log}
	notify.ready()
	go notify.watchdog(ctx)
	context.AfterFunc(ctx, func() {
		stop() // a second signal ends it at once
		notify.stopping()
	})
	return server.Serve(ctx, listener)
}

func warn(log *slog.Logger, config *proxy.Config) {
	for _, warning := range config.Warnings() {
		log.Warn("configuration", "warning", warning)
	}
}

func reload(server *proxy.Server, load func() (*proxy.Config, error), log *slog.Logger) {
	notify := manager{log}
	if load == nil {
		log.Warn("reload refused", "error", "there is no configuration file")
		return
	}
	notify.reloading()
	config, err := load()
	if err == nil {
		err = server.Reload(config)
	}
	if err != nil {
		log.Error("reload refused, the old configuration stays", "error", err)
		notify.reloaded("reload refused, the old configuration stays: " + err.Error())
		return
	}
	warn(log, config)
	log.Info("reloaded")
	notify.reloaded("")
}
