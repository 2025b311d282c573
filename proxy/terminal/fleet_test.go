package terminal

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func statusOf(t *testing.T, f *figures.Figures, metrics string) *Status {
	s, err := NewStatus(f, metrics)
	require.NoError(t, err)
	return s
}

const fleetMetrics = `# TYPE spdk_proxy_build_info gauge
spdk_proxy_build_info{version="0.1.0",goversion="go1"} 1
# TYPE spdk_proxy_target_config_save_pending gauge
spdk_proxy_target_config_save_pending 0
# TYPE spdk_proxy_certificate_expiry_timestamp_seconds gauge
spdk_proxy_certificate_expiry_timestamp_seconds{certificate="client_ca"} 1896169600
spdk_proxy_certificate_expiry_timestamp_seconds{certificate="server"} 1898169600
`

func fleetOf(t *testing.T) *Fleet {
	fine := &figures.Figures{Up: true, Phase: "runtime", Release: "v26.05", Taken: taken, Stores: []figures.Store{
		{Name: "lvs0", ClusterSize: 1 << 30, Clusters: 100, Free: 54, Committed: 75 << 30},
		{Name: "lvs1", ClusterSize: 1 << 30, Clusters: 100, Free: 20, Committed: 120 << 30},
	}}
	full := &figures.Figures{Up: true, Phase: "runtime", Release: "v24.01", Taken: taken, Stores: []figures.Store{{Name: "lvs0", ClusterSize: 1 << 30, Clusters: 100, Free: 1}}}
	limited := &figures.Figures{Up: true, Phase: "runtime", Release: "v26.05", Taken: taken, Failures: []figures.Failure{{Method: "spdkgate_get_metrics", Err: &spdkrpc.Error{Method: "spdkgate_get_metrics", Kind: spdkrpc.Denied}}}}
	broken := &figures.Figures{Up: true, Phase: "runtime", Release: "v26.05", Taken: taken, Failures: []figures.Failure{{Method: "m", Err: errors.New("m: failed")}}}
	return NewFleet(taken, []Server{
		NewServer("fine", "https://fine", statusOf(t, fine, fleetMetrics), "", nil),
		NewServer("limited", "https://limited", statusOf(t, limited, ""), "", nil),
		NewServer("broken", "https://broken", statusOf(t, broken, ""), "", nil),
		NewServer("full", "https://full", statusOf(t, full, strings.ReplaceAll(fleetMetrics, "pending 0", "pending 1")+"# TYPE spdk_proxy_target_shared gauge\nspdk_proxy_target_shared 1\n"), "", nil),
		NewServer("down", "https://down", statusOf(t, &figures.Figures{Phase: "unreachable", Taken: taken}, ""), "", nil),
		NewServer("gone\x1b", "https://gone", nil, "unreachable", errors.New("no route\nto host")),
	})
}

const fleetScreen = `SERVER      STATE               SPDK    PROXY  FREE                PROVISIONED  CONFIG   CERTIFICATE
gone\u001b  unreachable         -       -      -                   -         -        -
  ! no route\u000ato host
down        target unreachable  -       -      -                   -         -        -
  ! the target is unreachable
full        up, 2 warnings      v24.01  0.1.0  1 GiB of 100 GiB  0 %       not saved yet  2030-02-24
  ! lvstore lvs0 is 99 % full
  ! another spdk-proxy serves this target: stop one of them, because calls through two proxies do not wait for each other, and SPDK can lose data
broken      up, 1 warning       v26.05  -      -                   -         -        -
  ? m: failed
fine        up                  v26.05  0.1.0  74 GiB of 200 GiB  120 %     saved    2030-02-24
limited     up                  v26.05  -      -                   -         -        -

6 storage servers, 4 need attention
? incomplete for 1 storage server, because the user's roles or tenant do not permit it: spdkgate_get_metrics
`

// Servers that need attention come first, and the screen names the data that is missing.
func TestFleetTableBeginsWithServersThatNeedAttention(t *testing.T) {
	f := fleetOf(t)
	screen := Page{}.Fleet(f)
	assert.Equal(t, strings.Fields(fleetScreen), strings.Fields(screen), screen)
	at := -1 // the columns are aligned
	for line := range strings.Lines(screen) {
		if i := strings.Index(line, "v26.05"); i > 0 {
			require.True(t, at < 0 || at == i, screen)
			at = i
		}
	}
	assert.Equal(t, 4, f.Attention())
	for _, width := range []int{20, 80} {
		for line := range strings.Lines(Page{Width: width}.Fleet(f)) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
		}
	}
	coloured := Page{Colours: true}.Fleet(f)
	assert.Contains(t, coloured, "\x1b[31mdown ")
	assert.Contains(t, coloured, "\x1b[33mfull ")

	text, err := f.JSON()
	require.NoError(t, err)
	var again Fleet
	require.NoError(t, json.Unmarshal(text, &again))
	assert.Equal(t, Server{Name: "gone\x1b", URL: "https://gone", Attention: true, State: "unreachable", Error: "no route\nto host"}, again.Servers[0])
	assert.Equal(t, "full", again.Servers[2].Name)
	assert.Equal(t, Unsaved, again.Servers[2].Status.Configuration)
	assert.Equal(t, time.Unix(1898169600, 0).UTC(), *again.Servers[2].Status.Certificate)
	assert.Equal(t, NotKept, statusOf(t, reading(), metrics).Configuration, "the proxy's metrics have nothing about it")
}
