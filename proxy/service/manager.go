package service

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// A manager reports the service's state to systemd, provided that systemd started the service.
type manager struct{ log *slog.Logger }

func (m manager) ready() { m.notify(daemon.SdNotifyReady) }

func (m manager) stopping() { m.notify(daemon.SdNotifyStopping) }

func (m manager) reloading() {
	m.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// reloaded notifies systemd that a reload has ended. `systemctl status` shows status.
func (m manager) reloaded(status string) {
	m.notify(daemon.SdNotifyReady + "\nSTATUS=" + strings.ReplaceAll(status, "\n", "; "))
}

// watchdog notifies systemd that this process is working, at the interval that systemd requests, as
// long as alive returns nil. If the notifications stop, systemd ends the process with SIGABRT,
// which writes the stacks of all goroutines to the log, and then restarts the process.
func (m manager) watchdog(ctx context.Context, alive func(context.Context) error) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn("the systemd watchdog is off", "error", err)
	}
	if interval <= 0 {
		return
	}
	tick := time.NewTicker(interval / 3)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := m.checkAlive(ctx, interval/3, alive); err == nil {
			m.notify(daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			m.log.Error("not alive", "error", err)
			m.notify("STATUS=not alive: " + err.Error())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m manager) checkAlive(ctx context.Context, within time.Duration, alive func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return alive(ctx)
}

func (m manager) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		m.log.Warn("cannot notify systemd", "error", err)
	}
}
