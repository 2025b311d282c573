package proxy

import (
	"fmt"
	"log/slog"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// newAuditLog opens the audit log at the configured destination. Entries that cannot be written
// there go to the ordinary log.
func (s *Server) newAuditLog(schema *rpcschema.Document) error {
	calls := s.config.Log.Calls
	level := s.config.Log.Level
	var first slog.Handler
	switch calls.To {
	case config.CallsToFile:
		file, err := auditlog.OpenFile(calls.Path, int64(calls.MaxMiB)<<20, calls.Keep, func(problem string, err error) {
			s.metrics.AuditFailed()
			s.log.Error(problem, "path", calls.Path, "error", err)
		})
		if err != nil {
			return err
		}
		s.callLog = file
		first = slog.NewJSONHandler(printable.NewWriter(file), &slog.HandlerOptions{Level: level})
	case config.CallsToJournal:
		journal, err := auditlog.OpenJournal(auditlog.JournalSocket, level)
		if err != nil {
			return fmt.Errorf("log.calls: connect to journald: %w: without systemd, use another value of log.calls.to", err)
		}
		first = journal
	default:
		s.auditLog = auditlog.New(s.log, schema)
		return nil
	}
	s.auditLog = auditlog.New(slog.New(&auditlog.Fallback{First: first, Second: s.log.Handler(), Failed: s.metrics.AuditFailed}), schema)
	return nil
}

func (s *Server) closeAuditLog() {
	s.auditLog.Flush()
	if s.callLog == nil {
		return
	}
	if err := s.callLog.Close(); err != nil {
		s.log.Error("the last lines of the audit log may be lost in a power failure", "error", err)
	}
}
