package proxy

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
)

func newFlood() (*flood, *logBook) {
	book := new(logBook)
	return &flood{log: config.NewLogger(book, config.Log{Format: "json"})}, book
}

func TestFloodIsToldInOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, book := newFlood()
		guest := netip.MustParseAddr("192.0.2.1")
		admitted := 0
		for i := range 10000 {
			if f.admit(guest, []string{"", "admin", "viewer"}[i%3]) {
				admitted++
			}
		}
		assert.Equal(t, floodPerSource, admitted)
		assert.True(t, f.admit(netip.MustParseAddr("192.0.2.2"), ""), "another one is seen all the same")
		assert.Empty(t, book.String())

		time.Sleep(floodWindow + time.Second)
		synctest.Wait()
		lines := book.lines(t, floodLogMessage)
		require.Len(t, lines, 1)
		assert.Equal(t, "192.0.2.1", lines[0]["source"])
		assert.EqualValues(t, 10000-floodPerSource, lines[0]["count"])
		assert.ElementsMatch(t, []any{"admin", "viewer"}, lines[0]["users"])
		assert.EqualValues(t, 60, lines[0]["seconds"])
		assert.Equal(t, "WARN", lines[0]["level"])

		assert.True(t, f.admit(guest, ""), "a new minute")
		f.tell()
		f.tell() // as a stopping server does, whatever is going on
		assert.Len(t, book.lines(t, floodLogMessage), 1, "nothing was merged")
	})
}

// However many take part, the log of a minute has only so many lines.
func TestFloodFromEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, book := newFlood()
		admitted := 0
		for i := range 50000 {
			address := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			if f.admit(address, fmt.Sprint("user", i)) {
				admitted++
			}
		}
		f.tell()
		assert.Equal(t, floodSources+floodPerSource, admitted, "one each, and of the others together as of one")
		lines := book.lines(t, floodLogMessage)
		require.LessOrEqual(t, len(lines), floodSources+1)
		total := admitted
		for _, line := range lines {
			total += int(line["count"].(float64))
			assert.LessOrEqual(t, len(line["users"].([]any)), floodUsers)
		}
		assert.Equal(t, 50000, total, "none is lost")
		assert.Equal(t, "others", lines[0]["source"])
	})
}

func TestLinesOfAllSourcesAreBounded(t *testing.T) {
	f, _ := newFlood()
	admitted := 0
	for i := range 20 * floodSources {
		if f.admit(netip.AddrFrom4([4]byte{10, 0, 0, byte(i % floodSources)}), "") {
			admitted++
		}
	}
	assert.Equal(t, floodLines, admitted)
	f.tell()
}

func TestFloodFromOneNetwork(t *testing.T) {
	f, book := newFlood()
	for i := range 100 {
		f.admit(netip.MustParseAddr(fmt.Sprintf("2001:db8::%x%%eth0", i+1)), "")
	}
	f.tell()
	lines := book.lines(t, floodLogMessage)
	require.Len(t, lines, 1)
	assert.Equal(t, "2001:db8::/64", lines[0]["source"])
	assert.EqualValues(t, 90, lines[0]["count"])
}

// Nobody's requests share lines; those of users who are known never do.
func TestOnlyNobodysRequestsAreMerged(t *testing.T) {
	b := newBench(t, "v26.05")
	for range 30 {
		assert.Equal(t, http.StatusUnauthorized, b.do("POST", "/", "", "", strings.NewReader(createMalloc)).StatusCode)
	}
	require.Len(t, b.log.lines(t, "call"), floodPerSource)
	for range 30 {
		assert.Equal(t, http.StatusForbidden, b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(createMalloc)).StatusCode)
	}
	require.Len(t, b.log.lines(t, "call"), floodPerSource+30)
	b.proxy.flood.tell()
	require.Len(t, b.log.lines(t, floodLogMessage), 1)
	assert.EqualValues(t, 20, b.log.lines(t, floodLogMessage)[0]["count"])
	text := b.scrape()
	assert.Contains(t, text, "\nspdk_proxy_audit_merged_total 20\n")
	assert.Contains(t, text, fmt.Sprintf("\nspdk_proxy_audit_lines_total %d\n", floodPerSource+30))
	assert.Contains(t, text, `spdk_proxy_authentication_failures_total{reason="no_credentials"} 30`)
}
