package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/targetmetrics"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// targetMetricsMethod is the method behind GET /metrics/target: users who may call it may scrape.
const targetMetricsMethod = "spdkgate_get_target_metrics"

const (
	figuresAge      = 10 * time.Second // between two readings of the target's figures
	figuresWait     = 20 * time.Second // for one reading
	figuresCallWait = 5 * time.Second  // for one call of it
)

// serveTargetMetrics answers GET /metrics/target with the method's result as plain text. A refusal
// is a JSON-RPC error.
func (s *Server) serveTargetMetrics(w http.ResponseWriter, r *http.Request) {
	s.serveGetCall(w, r, targetMetricsMethod, func(c *call) { writeText(w, r, c.text) })
}

// scrapeTargetMetrics answers GET /metrics/target at metrics.listen, where everybody may read.
func (s *Server) scrapeTargetMetrics(w http.ResponseWriter, r *http.Request) {
	now, err := s.figures.Latest(r.Context())
	if err != nil {
		return // the scraper has disconnected
	}
	writeText(w, r, s.targetMetrics.Text(now))
}

func writeText(w http.ResponseWriter, r *http.Request, t *targetmetrics.Text) {
	body, h := t.Plain, w.Header()
	h.Set("Content-Type", targetmetrics.ContentType)
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = t.Gzipped()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// answerTargetMetrics answers targetMetricsMethod, which policy has allowed unless its parameters
// decide. Tenants are refused, because the figures are of all objects. The text is not made anew
// for each caller, and for a GET no JSON is made of it.
func (s *Server) answerTargetMetrics(ctx context.Context, now *settings, c *call, method *rpcschema.Method, decision policy.Decision) (json.RawMessage, error) {
	if err := s.admitToMetrics(now, c, method, decision, "the metrics are about all objects of the target, so tenants may not read them"); err != nil {
		return nil, err
	}
	give, err := s.target.AcquireSlot(ctx, c.in.sender.user)
	if err != nil {
		return nil, err
	}
	defer give()
	latest, err := s.figures.Latest(ctx)
	if err != nil {
		return nil, errGone
	}
	c.text = s.targetMetrics.Text(latest)
	if c.in.get {
		return nil, nil
	}
	return jsonrpc.Marshal(string(c.text.Plain))
}

// readFigures makes one reading of the target's figures. Its calls take their turn with those of
// users.
func (s *Server) readFigures(ctx context.Context) (made *figures.Figures) {
	s.containPanic("figures", func() {
		made = s.figuresReader.Read(ctx, s.targetToRead(ctx))
		s.histogramLog.note(made, s.log)
	})
	return made
}

func (s *Server) targetToRead(ctx context.Context) figures.Target {
	probing, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	seen, err := s.target.Probe(probing)
	t := figures.Target{Up: err == nil && seen.Phase == target.Runtime, Phase: string(seen.Phase), Release: seen.Release, Restarts: seen.Reconnects}
	if err != nil {
		t.Phase = string(target.Unreachable)
	}
	if !t.Up {
		return t
	}
	conn, err := s.target.Connect(ctx, "")
	if err != nil {
		t.Up, t.Phase = false, string(target.Unreachable)
		return t
	}
	t.Release = conn.Release()
	t.Ask = func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
		result, err := conn.Call(ctx, "", method, params, figuresCallWait)
		var down *target.DownError
		if errors.As(err, &down) {
			return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.Unreachable, Err: err}
		}
		return result, err
	}
	return t
}
