package service

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/config"
)

// A reloader reads the configuration anew when it is asked to, by SIGHUP or by
// `spdk-proxy reload`, and when one of its files has changed. It does one at a
// time, so that the last one sees the newest files.
type reloader struct {
	server *proxy.Server
	load   func() (*config.Config, error) // nil: there is no configuration file
	log    *slog.Logger
	notify manager
	files  *files
}

// run serves until ctx ends. Whoever sends a channel to asked gets the outcome.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal, asked <-chan chan<- error) {
	defer r.files.close()
	for {
		select {
		case <-hangups:
			_ = r.reload("signal")
		case answer := <-asked:
			answer <- r.reload("spdk-proxy reload")
		case <-r.files.events():
			r.files.touch()
		case <-r.files.lost():
			r.files.touch()
		case <-r.files.settled:
			r.files.settled = nil
			if r.files.changed() {
				_ = r.reload("files have changed")
			}
		case <-ctx.Done():
			return
		}
	}
}

var errNoFile = errors.New("there is no configuration file")

// reload replaces the configuration as a whole, or not at all. The outcome is
// told in the log and in the service's status.
func (r *reloader) reload(cause string) error {
	if r.load == nil {
		r.log.Warn("reload refused", "cause", cause, "error", errNoFile)
		return errNoFile
	}
	r.notify.reloading()
	r.files.changed() // what is read now needs no other reload
	config, err := r.load()
	if err == nil {
		r.files.watch(config.Files()) // what makes it sound may come later
		err = r.server.Reload(config)
	}
	r.server.Reloaded(err)
	if err != nil {
		r.log.Error("reload refused, the old configuration stays", "cause", cause, "error", err)
		r.notify.reloaded("reload refused, the old configuration stays: " + err.Error())
		return err
	}
	warn(r.log, config)
	r.log.Info("reloaded", "cause", cause)
	r.notify.reloaded("")
	return nil
}
