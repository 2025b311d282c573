package auditlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// JournalSocket is the path of the socket at which journald receives entries in its native
// protocol.
const JournalSocket = "/run/systemd/journal/socket"

// journalPrefix is the prefix of all field names that journald does not define.
const journalPrefix = "SPDKGATE_"

// journalWait is the longest time to wait until a busy journald accepts a line.
const journalWait = 10 * time.Second

// journalFields lists the keys whose values become journal fields of their own.
var journalFields = map[string]bool{
	"request_id": true, "client_request_id": true, "trace_id": true, keyUser: true, "auth": true, "credential": true, "source": true, keyMethod: true,
	"resources": true, "tenant": true, keyDecision: true, "rule": true, keyStatus: true, "code": true, "error": true,
}

// A Journal is a handler that sends lines to journald in its native protocol. The message of a
// journal entry is the line as JSON. Values that people search for are additionally sent as fields,
// such as SPDKGATE_USER. Each line is one datagram of at most about 100 KiB, which is below the
// kernel's limit.
type Journal struct {
	socket string
	level  slog.Leveler

	mu   sync.Mutex
	conn *net.UnixConn // nil if not connected
}

// OpenJournal connects to journald.
func OpenJournal(socket string, level slog.Leveler) (*Journal, error) {
	j := &Journal{socket: socket, level: level}
	return j, j.connect()
}

func (j *Journal) connect() (err error) {
	j.conn, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: j.socket, Net: "unixgram"})
	return err
}

// Enabled implements slog.Handler.
func (j *Journal) Enabled(_ context.Context, level slog.Level) bool { return level >= j.level.Level() }

// WithAttrs implements slog.Handler. It ignores the attributes, because the audit log has no
// attributes common to all lines.
func (j *Journal) WithAttrs([]slog.Attr) slog.Handler { return j }

// WithGroup implements slog.Handler. It ignores the group, because the audit log has no groups.
func (j *Journal) WithGroup(string) slog.Handler { return j }

// Handle implements slog.Handler.
func (j *Journal) Handle(ctx context.Context, r slog.Record) error {
	datagram, err := journalEntry(ctx, r)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.conn != nil {
		if err = j.send(datagram); err == nil {
			return nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOTCONN) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			return err
		}
		_ = j.conn.Close()
	}
	// journald may have been restarted, so reconnect.
	if err := j.connect(); err != nil {
		j.conn = nil
		return err
	}
	return j.send(datagram)
}

func (j *Journal) send(datagram []byte) error {
	if err := j.conn.SetWriteDeadline(time.Now().Add(journalWait)); err != nil {
		return err
	}
	_, err := j.conn.Write(datagram)
	return err
}

func journalEntry(ctx context.Context, r slog.Record) ([]byte, error) {
	var line, b bytes.Buffer
	if err := slog.NewJSONHandler(printable.NewWriter(&line), &slog.HandlerOptions{Level: r.Level}).Handle(ctx, r); err != nil {
		return nil, err
	}
	journalField(&b, "MESSAGE", strings.TrimSuffix(line.String(), "\n"))
	journalField(&b, "PRIORITY", journalPriority(r.Level))
	journalField(&b, "SYSLOG_IDENTIFIER", "spdk-proxy")
	r.Attrs(func(a slog.Attr) bool {
		if !journalFields[a.Key] {
			return true
		}
		name := journalPrefix + strings.ToUpper(a.Key)
		if list, ok := a.Value.Any().([]string); ok { // a field may occur several times in an entry
			for _, item := range list {
				journalField(&b, name, printable.String(item))
			}
			return true
		}
		journalField(&b, name, printable.String(a.Value.String()))
		return true
	})
	return b.Bytes(), nil
}

// journalField writes a field with an explicit length, so that its value may contain any byte.
func journalField(b *bytes.Buffer, name, value string) {
	if value == "" {
		return
	}
	b.WriteString(name)
	b.WriteByte('\n')
	_ = binary.Write(b, binary.LittleEndian, uint64(len(value))) // cannot fail: b grows as needed
	b.WriteString(value)
	b.WriteByte('\n')
}

// journalPriority returns the syslog priority for a level.
func journalPriority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "3"
	case level >= slog.LevelWarn:
		return "4"
	case level >= slog.LevelInfo:
		return "6"
	}
	return "7"
}
