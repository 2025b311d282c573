package config

import (
	"io"
	"log/slog"
)

// Log says how the log is written.
type Log struct {
	Format string     `yaml:"format"`
	Level  slog.Level `yaml:"level"`
}

// NewLogger makes the logger of a configuration.
func NewLogger(w io.Writer, c Log) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.Level}
	if c.Format == "text" {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}
