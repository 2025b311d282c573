package observe

import (
	"errors"
	"log/slog"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A histogramLog logs which latency histograms cannot be read. It logs each reason only once,
// because figures are read every ten seconds. Only one goroutine at a time may use it.
type histogramLog struct {
	problems map[string]histogramProblem // keyed by the bdev's name
}

// A histogramProblem is a reason why a histogram cannot be read, and the remedy.
type histogramProblem struct{ reason, action string }

func histogramProblemOf(err error) histogramProblem {
	const enable = "bdev_enable_histogram with enable=true, and since SPDK v25.05 min_nsec=0 and max_nsec=18446744073709551615"
	switch {
	case errors.Is(err, figures.ErrNoBdev), errors.Is(err, spdkrpc.NoSuchDevice):
		return histogramProblem{"no such bdev", "correct metrics.latency_histograms, or create the bdev"}
	case errors.Is(err, figures.ErrNoHistogram):
		return histogramProblem{"not enabled", "call " + enable}
	case errors.Is(err, figures.ErrPartialHistogram):
		return histogramProblem{"leaves out I/O", "call bdev_enable_histogram with enable=false, then " + enable}
	}
	return histogramProblem{"failed", "see the error"}
}

// note compares the histograms in new figures with the previous ones, and logs the differences.
func (l *histogramLog) note(f *figures.Figures, log *slog.Logger) {
	if !f.Up {
		return
	}
	for i := range f.Histograms {
		h := &f.Histograms[i]
		before, known := l.problems[h.Bdev]
		switch {
		case h.Err == nil && known:
			delete(l.problems, h.Bdev)
			log.Info("latency histogram is read again", "bdev", h.Bdev)
		case h.Err != nil:
			now := histogramProblemOf(h.Err)
			if known && now == before {
				continue
			}
			if l.problems == nil {
				l.problems = map[string]histogramProblem{}
			}
			l.problems[h.Bdev] = now
			log.Warn("latency histogram cannot be read", "bdev", h.Bdev, "reason", now.reason, "action", now.action, "error", h.Err.Error())
		}
	}
}
