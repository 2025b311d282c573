package service

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/config"
)

// A reloader reloads the configuration on SIGHUP, on `spdk-proxy reload`, and when one of its files
// has changed. It performs one reload at a time, so that the last reload reads the newest files.
type reloader struct {
	server *proxy.Server
	load   func() (*config.Config, error) // nil if there is no configuration file
	log    *slog.Logger
	notify manager
	files  *files
}

// run reloads until ctx ends. Each channel received from requests gets the outcome of one reload.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal, requests <-chan chan<- error) {
	defer r.files.close()
	for {
		select {
		case <-hangups:
			_ = r.reload("signal")
		case outcome := <-requests:
			outcome <- r.reload("spdk-proxy reload")
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

var errNoFile = errors.New("the proxy was started without a configuration file, so there is nothing to reload")

// reload replaces the configuration, completely or not at all. It reports the outcome in the log
// and in the service's status.
func (r *reloader) reload(cause string) error {
	if r.load == nil {
		r.log.Warn("reload refused", "cause", cause, "error", errNoFile)
		return errNoFile
	}
	r.notify.reloading()
	r.files.changed() // this reload reads the current contents, so no further reload is needed
	cfg, err := r.load()
	if err == nil {
		err = checkOwnInstance(cfg)
	}
	if err == nil {
		// watch the files even if the reload was refused, because a later change to them may
		// correct the mistake
		r.files.watch(cfg.Files())
		err = r.server.Reload(cfg)
	}
	r.server.Reloaded(err)
	if err != nil {
		r.log.Error("reload refused, the old configuration remains in effect", "cause", cause, "error", err)
		r.notify.reloaded("reload refused, the old configuration remains in effect: " + err.Error())
		return err
	}
	warn(r.log, cfg, uidMap)
	r.log.Info("reloaded", "cause", cause)
	r.notify.reloaded("")
	return nil
}
