package service

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/config"
)

// Run runs a proxy with a configuration until SIGTERM or SIGINT. load reads the configuration
// again; it is nil if there is no configuration file. version is this program's version.
func Run(version string, c *config.Config, load func() (*config.Config, error)) error {
	tuneMemory()
	log := config.NewLogger(os.Stderr, c.Log)
	warn(log, c, uidMap)
	if err := checkOwnInstance(c); err != nil {
		return err
	}
	server, err := proxy.NewServer(c, proxy.Options{Log: log, Version: version})
	if err != nil {
		return err
	}
	sockets, err := listen(server, placesOf(c))
	if err != nil {
		return err
	}
	requests, err := openControl(log)
	if err != nil {
		return err
	}
	if err := openDebug(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	notify := manager{log}
	reloader := reloader{server: server, load: load, log: log, notify: notify, files: watchFiles(filesOf(c, load), log)}
	go reloader.run(ctx, hangups, requests)
	notify.ready()
	go notify.watchdog(ctx, server.Alive)
	go returnMemory(ctx)
	notified := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(notified)
		stop() // a second signal ends the process immediately
		notify.stopping()
	})
	https, local := sockets.serving()
	err = server.Serve(ctx, https, local...)
	if ctx.Err() != nil {
		<-notified // otherwise, an idle proxy could end before systemd is notified
	}
	return err
}

// filesOf returns the files from which a configuration was read, or none if load is nil.
func filesOf(c *config.Config, load func() (*config.Config, error)) []string {
	if load == nil {
		return nil
	}
	return c.Files()
}

// warn logs warnings about a configuration. users is the path of the file that lists the users
// visible to this process.
func warn(log *slog.Logger, c *config.Config, users string) {
	for _, warning := range c.Warnings() {
		log.Warn("configuration", "warning", warning)
	}
	if c.ListenUnix.Path != "" && usersAreHidden(users) {
		log.Warn("the user namespace of this process hides other users, so calls at listen_unix are refused except from root and the proxy's own user. Run the proxy without it: PrivateUsers=no in a drop-in for its unit")
	}
}
