package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// What a client can make long is logged up to here.
const (
	maxLogged      = 16 << 10 // encoded parameters of one call; longer ones are left out
	maxLoggedName  = 128      // name of a method, which may be none
	maxLoggedError = 2 << 10  // error that repeats what is not known

	maxLoggedResources = 16  // that a call names
	maxLoggedResource  = 256 // name of one: SPDK's longest, of NQNs, have 223
)

// audit writes the one line that each call leaves: who, from where, what, how
// it was decided and how it ended. Calls that were not executed are warnings.
// Secrets are redacted; passwords, hashes and Authorization never get here.
//
// What nobody who is known has sent may share a line with others, see flood.
func (s *Server) audit(c *call) {
	took := time.Since(c.started)
	s.observe(c, took)
	if c.decision == unauthenticated && !s.flood.admit(c.source.Addr(), c.user) {
		s.metrics.AuditMerged()
		return
	}
	level := slog.LevelInfo
	if c.answer.err != nil && !c.answer.spdk || c.decision == learned {
		level = slog.LevelWarn
	}
	if !s.log.Enabled(context.Background(), level) {
		return
	}
	s.metrics.AuditLine()
	list := make([]slog.Attr, 0, 20)
	list = append(list,
		slog.String("request_id", c.id),
		slog.String("user", c.user),
		slog.String("auth", c.auth),
		slog.String("source", c.source.String()),
		slog.String("method", clip(c.method, maxLoggedName)),
	)
	if c.credential != "" {
		list = append(list, slog.String("credential", clip(c.credential, maxLoggedName)))
	}
	if c.params != nil {
		list = append(list, slog.Any("resources", s.resources(c)), slog.Any("params", c.loggedParams()))
	}
	if len(c.translations) > 0 {
		list = append(list, slog.Any("translated", translated(c.translations)))
	}
	if c.tenant != "" {
		list = append(list, slog.String("tenant", c.tenant), slog.Int("hidden", c.hidden))
		if len(c.raised) > 0 {
			list = append(list, slog.Any("raised", c.raised))
		}
	}
	if c.batch {
		list = append(list, slog.String("batch", fmt.Sprintf("%d/%d", 1+slices.Index(c.calls, c), len(c.calls))))
	}
	list = append(list,
		slog.String("decision", c.decision),
		slog.String("rule", c.rule),
		slog.Int("status", c.answer.status),
	)
	if c.answer.err != nil {
		list = append(list, slog.Int("code", c.answer.err.Code), slog.String("error", clip(c.err.Error(), maxLoggedError)))
	}
	list = append(list, slog.Float64("latency_ms", float64(took.Microseconds())/1000))
	s.log.LogAttrs(context.Background(), level, "call", list...)
}

// resources are what the parameters name, such as bdev:lvs0/vol1.
func (s *Server) resources(c *call) []string {
	names, more := s.schema.Names(c.method, c.params, maxLoggedResources)
	list := make([]string, 0, len(names)+1)
	for _, n := range names {
		list = append(list, n.Kind+":"+clip(n.Value, maxLoggedResource))
	}
	if more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return list
}

func translated(translations []rpcschema.Translation) (list []string) {
	for _, t := range translations {
		list = append(list, t.From+" to "+t.To)
	}
	return list
}

func clip(s string, most int) string { return s[:min(len(s), most)] }

// loggedParams is what the log has of the parameters. Their own length decides, not
// that of the request: a client could hide them behind spaces or other calls.
func (c *call) loggedParams() any {
	text, err := jsonrpc.Marshal(c.params)
	switch {
	case err != nil:
		return "(cannot be encoded)"
	case len(text) > maxLogged:
		return fmt.Sprintf("(%d bytes, too long to be logged)", len(text))
	}
	return loggedParams(text)
}

// loggedParams are written as JSON by every handler.
type loggedParams json.RawMessage

func (p loggedParams) MarshalJSON() ([]byte, error) { return p, nil }

func (p loggedParams) MarshalText() ([]byte, error) { return p, nil }
