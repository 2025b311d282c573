package observe

import (
	"context"
	"time"

	"github.com/spdkgate/spdkgate/proxy/cert"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/events"
	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/iohistory"
	"github.com/spdkgate/spdkgate/proxy/targetmetrics"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// An Observer reads the state and the figures of the target and the proxy. It is safe for
// concurrent use.
type Observer struct {
	Options
	figures       *figures.Shared // the target's figures
	reader        *figures.Reader // reads the figures
	targetMetrics *targetmetrics.Exporter
	histogramLog  histogramLog // for histograms in figures
	io            *ioFollower  // nil if no history is kept
	tenants       tenantReading
}

// Options configures an Observer.
type Options struct {
	Gate     *gate.Gate
	Events   *events.Hub
	Cert     *cert.Shown
	Sessions func() int  // number of the console's sessions
	Shared   func() bool // reports whether another proxy serves the target
}

const (
	figuresAge      = 10 * time.Second // minimum time between two reads of the target's figures
	figuresWait     = 20 * time.Second // time limit for a read
	figuresCallWait = 5 * time.Second  // time limit for each call of a read
	// probeWait limits how long a scrape waits for the target.
	probeWait = 2 * time.Second
)

// New returns an Observer.
func New(o Options, c *config.Config, schema *rpcschema.Document) *Observer {
	b := &Observer{Options: o, reader: figures.NewReader(schema, c.Metrics.LatencyHistograms...), targetMetrics: targetmetrics.New(c.Metrics.Volumes)}
	b.figures = figures.NewShared(b.ReadFigures, figuresAge, figuresWait)
	if c.Metrics.IOHistory {
		b.io = &ioFollower{reader: figures.NewIOReader(schema), history: iohistory.New()}
	}
	return b
}

// ReadEvery sets the minimum time between two reads of the target's figures, and the reader that
// makes them.
func (o *Observer) ReadEvery(age time.Duration, reader *figures.Reader) {
	o.reader, o.figures = reader, figures.NewShared(o.ReadFigures, age, figuresWait)
}

// Metrics serves spdkgate_get_metrics.
func (o *Observer) Metrics(context.Context, *gate.Request) (any, error) { return o.Gate.Metrics.Text() }

// TargetMetrics serves spdkgate_get_target_metrics. All callers share the same text. For the page,
// it returns the text without converting it to JSON.
func (o *Observer) TargetMetrics(ctx context.Context, r *gate.Request) (any, error) {
	latest, err := o.figures.Latest(ctx)
	if err != nil {
		return nil, gate.ErrGone
	}
	text := o.targetMetrics.Text(latest)
	if r.Call.In.Page {
		return text, nil
	}
	return string(text.Plain), nil
}
