package service

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// A manager tells systemd how the service does, if systemd started it.
type manager struct{ log *slog.Logger }

func (m manager) ready() { m.tell(daemon.SdNotifyReady) }

func (m manager) stopping() { m.tell(daemon.SdNotifyStopping) }

func (m manager) reloading() {
	m.tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// reloaded shows what came of it in `systemctl status`.
func (m manager) reloaded(status string) {
	m.tell(daemon.SdNotifyReady + "\nSTATUS=" + strings.ReplaceAll(status, "\n", "; "))
}

// watchdog tells systemd that this process lives, as often as it wants to hear
// it, as long as that is so. When it is not, systemd ends it with SIGABRT, which
// writes the stack of every goroutine to the log, and starts another.
func (m manager) watchdog(ctx context.Context, alive func(context.Context) error) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn("watchdog", "error", err)
	}
	if interval <= 0 {
		return
	}
	tick := time.NewTicker(interval / 3)
	defer tick.Stop()
	for {
		if err := m.lives(ctx, interval/3, alive); err == nil {
			m.tell(daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			m.log.Error("not alive", "error", err)
			m.tell("STATUS=not alive: " + err.Error())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m manager) lives(ctx context.Context, within time.Duration, alive func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return alive(ctx)
}

func (m manager) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		m.log.Warn("tell systemd", "error", err)
	}
}
