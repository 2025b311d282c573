package auditlog

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/logtest"
)

func newThrottle() (*auditThrottle, *logtest.Log) {
	book := new(logtest.Log)
	return &auditThrottle{log: slog.New(slog.NewJSONHandler(book, nil))}, book
}

// at returns the source name of an address.
func at(address netip.Addr) string {
	return Source{Address: netip.AddrPortFrom(address, 1)}.throttled()
}

func TestRequestsFromOneSourceShareALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		throttle, book := newThrottle()
		guest := at(netip.MustParseAddr("192.0.2.1"))
		admitted := 0
		for i := range 10000 {
			if throttle.admit(guest, []string{"", "admin", "viewer"}[i%3]) {
				admitted++
			}
		}
		assert.Equal(t, linesPerSource, admitted)
		assert.True(t, throttle.admit(at(netip.MustParseAddr("192.0.2.2")), ""), "another source still gets a line")
		assert.Empty(t, book.String())

		time.Sleep(throttleWindow + time.Second)
		synctest.Wait()
		lines := book.Lines(t, mergedMessage)
		require.Len(t, lines, 1)
		assert.Equal(t, "192.0.2.1", lines[0]["source"])
		assert.EqualValues(t, 10000-linesPerSource, lines[0]["count"])
		assert.ElementsMatch(t, []any{"admin", "viewer"}, lines[0]["users"])
		assert.EqualValues(t, 60, lines[0]["seconds"])
		assert.Equal(t, "WARN", lines[0]["level"])

		assert.True(t, throttle.admit(guest, ""), "a new minute")
		throttle.flush()
		throttle.flush() // a stopping server may flush at any time
		assert.Len(t, book.Lines(t, mergedMessage), 1, "nothing was merged")
	})
}

// However many sources send requests, the number of lines per minute is limited.
func TestLinesFromManySourcesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		throttle, book := newThrottle()
		admitted := 0
		for i := range 50000 {
			address := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
			if throttle.admit(at(address), fmt.Sprint("user", i)) {
				admitted++
			}
		}
		throttle.flush()
		assert.Equal(t, maxSources+linesPerSource, admitted, "one line for each counted source, and the limit of one source for all others together")
		lines := book.Lines(t, mergedMessage)
		require.LessOrEqual(t, len(lines), maxSources+1)
		total := admitted
		for _, line := range lines {
			total += int(line["count"].(float64))
			assert.LessOrEqual(t, len(line["users"].([]any)), maxUsersNamed)
		}
		assert.Equal(t, 50000, total, "all are counted")
		assert.Equal(t, "others", lines[len(lines)-1]["source"])
	})
}

func TestTotalNumberOfLinesIsLimited(t *testing.T) {
	throttle, _ := newThrottle()
	admitted := 0
	for i := range 20 * maxSources {
		if throttle.admit(at(netip.AddrFrom4([4]byte{10, 0, 0, byte(i % maxSources)})), "") {
			admitted++
		}
	}
	assert.Equal(t, linesPerWindow, admitted)
	throttle.flush()
}

func TestIPv6NetworkIsOneSource(t *testing.T) {
	throttle, book := newThrottle()
	for i := range 100 {
		throttle.admit(at(netip.MustParseAddr(fmt.Sprintf("2001:db8::%x%%eth0", i+1))), "")
	}
	throttle.flush()
	lines := book.Lines(t, mergedMessage)
	require.Len(t, lines, 1)
	assert.Equal(t, "2001:db8::/64", lines[0]["source"])
	assert.EqualValues(t, 90, lines[0]["count"])
}

func TestProcessesOfOneUserAreOneSource(t *testing.T) {
	throttle, book := newThrottle()
	for i := range 100 {
		throttle.admit(Source{Process: Process{UID: 1000, PID: int32(i)}}.throttled(), "")
	}
	throttle.flush()
	lines := book.Lines(t, mergedMessage)
	require.Len(t, lines, 1)
	assert.Equal(t, "unix:uid=1000", lines[0]["source"])
	assert.Equal(t, "unix:uid=1000,pid=7", Source{Process: Process{UID: 1000, PID: 7}}.String())
}
