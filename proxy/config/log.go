package config

import (
	"errors"
	"io"
	"log/slog"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// Log configures the log.
type Log struct {
	Format string     `yaml:"format"`
	Level  slog.Level `yaml:"level"`
	Calls  CallLog    `yaml:"calls"`
}

// These are the destinations of the audit log.
const (
	CallsToLog     = "log"     // to the general log
	CallsToJournal = "journal" // to journald, with fields
	CallsToFile    = "file"
)

// CallLog configures the audit log, which records calls.
type CallLog struct {
	To string `yaml:"to"`
	// Path, MaxMiB and Keep configure the log file.
	Path   string `yaml:"path" empty:"no"`
	MaxMiB int    `yaml:"max_mib"`
	Keep   int    `yaml:"keep"`
}

func (c *Config) validateLog() error {
	var wrong []error
	if c.Log.Format != "json" && c.Log.Format != "text" {
		wrong = append(wrong, errors.New("log.format must be json or text"))
	}
	calls := &c.Log.Calls
	wrong = append(wrong, between("log.calls.max_mib", calls.MaxMiB, 1<<20), between("log.calls.keep", calls.Keep, 10000))
	switch {
	case calls.To != CallsToLog && calls.To != CallsToJournal && calls.To != CallsToFile:
		wrong = append(wrong, errors.New("log.calls.to must be log, journal or file"))
	case calls.To == CallsToFile && calls.Path == "":
		wrong = append(wrong, errors.New("log.calls.path is missing: set the path of the file, such as /var/log/spdk-proxy/calls.log"))
	case calls.To != CallsToFile && calls.Path != "":
		wrong = append(wrong, errors.New("log.calls.path is set, but log.calls.to is not file: set it, or remove the path"))
	case calls.Path != "":
		var err error
		calls.Path, err = c.path(calls.Path)
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// NewLogger returns the logger for a configuration.
func NewLogger(w io.Writer, c Log) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.Level}
	w = printable.NewWriter(w) // JSON does not escape all control characters of terminals
	if c.Format == "text" {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}
