package auditlog

import (
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// BenchmarkWrite measures writing one call's entry to a device that discards it.
func BenchmarkWrite(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(b, err)
	defer func() { _ = null.Close() }()
	log := New(slog.New(slog.NewJSONHandler(printable.NewWriter(null), nil)), rpcschema.Default())
	e := &Entry{
		RequestID: "0123456789abcdef", User: "csi", Auth: "basic", Credential: "password 1",
		Source: Source{Address: netip.MustParseAddrPort("192.0.2.1:4711")}, Method: "bdev_lvol_create", Params: map[string]any{"lvol_name": "pvc-1", "lvs_name": "lvs0", "size_in_mib": 1024},
		Decision: Allowed, Rule: "role csi", Status: 200, Took: time.Millisecond,
	}
	b.ReportAllocs()
	for b.Loop() {
		log.Write(e)
	}
}
