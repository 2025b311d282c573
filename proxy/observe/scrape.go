package observe

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/web"
)

// scrapeRetry is the time between attempts to listen at the address for scrapes.
const scrapeRetry = 2 * time.Second

// ServeScrapes serves /metrics and /metrics/target on metrics.listen, if configured, until ctx
// ends. Because this is a loopback address, any local user could occupy it first. This must not
// prevent the proxy from serving calls, so ServeScrapes logs the problem and retries until the
// address is free.
func (o *Observer) ServeScrapes(ctx context.Context, c *config.Config, answerPanics func(http.Handler) http.Handler) {
	address := c.Metrics.Listen
	if address == "" {
		return
	}
	for logged := false; ; logged = true {
		l, err := net.Listen("tcp", address)
		if err == nil {
			o.serveScrapesOn(ctx, l, c, answerPanics)
			return
		}
		if !logged {
			o.Gate.Log.Error("cannot serve metrics", "listen", address, "error", err,
				"do", "stop the process that listens there, or change the port in metrics.listen")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(scrapeRetry):
		}
	}
}

func (o *Observer) serveScrapesOn(ctx context.Context, l net.Listener, c *config.Config, answerPanics func(http.Handler) http.Handler) {
	paths := http.NewServeMux()
	paths.Handle("GET /metrics", o.Gate.Metrics.Handler())
	paths.HandleFunc("GET /metrics/target", o.scrapeTargetMetrics)
	server := &http.Server{
		Handler: answerPanics(paths), ReadTimeout: clientconn.HeaderWait, WriteTimeout: clientconn.WriteWait, IdleTimeout: time.Duration(c.Limits.Idle), MaxHeaderBytes: web.MaxHeaderBytes,
		ErrorLog: web.DebugLog(o.Gate.Log),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	o.Gate.Log.Info("serving metrics", "url", fmt.Sprintf("http://%s/metrics", l.Addr()))
	_ = server.Serve(l) // returns when the server is closed
}

// scrapeTargetMetrics serves GET /metrics/target on metrics.listen, which everyone may read.
func (o *Observer) scrapeTargetMetrics(w http.ResponseWriter, r *http.Request) {
	latest, err := o.figures.Latest(r.Context())
	if err != nil {
		return // the scraper has disconnected
	}
	web.WriteText(w, r, o.targetMetrics.Text(latest))
}
