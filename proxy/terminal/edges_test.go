package terminal

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestLinesFitTheWidth(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"abc", 0, "abc"}, {"abc", 3, "abc"}, {"abc", 2, "a…"}, {"abc", 1, "…"}, {"äöü", 3, "äöü"}, {"äöü", 2, "ä…"},
		{"\x1f ~\x7f\u0080\u009f\u00a0", 0, "\\u001f ~\\u007f\\u0080\\u009f\u00a0"}, {"\xff", 0, "\ufffd"}, {"\u202eab", 8, "\\u202eab"}, {"\u202eab", 7, "\\u202e…"},
	} {
		assert.Equal(t, c.want, fit(c.text, c.columns), "%q in %d columns", c.text, c.columns)
	}
}

func TestUnitsChangeAtTheirLimits(t *testing.T) {
	for d, text := range map[time.Duration]string{
		0: "0 s", 59 * time.Second: "59 s", time.Minute: "1 min", time.Hour: "1 h 0 min", 23*time.Hour + 59*time.Minute: "23 h 59 min",
		24 * time.Hour: "1 d 0 h", 47 * time.Hour: "1 d 23 h",
	} {
		assert.Equal(t, text, since(d))
	}
	for n, text := range map[uint64]string{1024 * 100: "100 KiB", 1024*100 - 52: "99.9 KiB", 1 << 20: "1 MiB"} {
		assert.Equal(t, text, bytes(n))
	}
}

// lineWith returns the first line that contains text, or "".
func lineWith(page, text string) string {
	for line := range strings.Lines(page) {
		if strings.Contains(line, text) {
			return strings.TrimSuffix(line, "\n")
		}
	}
	return ""
}

func TestStatusHeaderShowsRestarts(t *testing.T) {
	for restarts, want := range map[int]string{
		0: "SPDK v26.05",
		1: "SPDK v26.05, restarted 1 time since the proxy started",
		2: "SPDK v26.05, restarted 2 times since the proxy started",
	} {
		page := Page{}.Status(&Status{Up: true, Release: "v26.05", Restarts: &restarts})
		assert.Equal(t, want, lineWith(page, "SPDK"))
	}
	assert.Equal(t, "SPDK v26.05", lineWith(Page{}.Status(&Status{Up: true, Release: "v26.05"}), "SPDK"))
}

func TestStatusOmitsEmptySections(t *testing.T) {
	none := Page{}.Status(&Status{Up: true})
	for _, heading := range []string{"Lvstores", "Cores", "Calls by user", "Warnings"} {
		assert.NotContains(t, none, heading)
	}
	users := func(n int) (list []User) {
		for i := range n {
			list = append(list, User{Name: fmt.Sprintf("user%d", i), Calls: 3, Refused: 1, Failed: 2})
		}
		return list
	}
	for heading, s := range map[string]Status{
		"Lvstores":      {Stores: []Store{{Name: "lvs"}}},
		"Cores        ": {Up: true, Cores: 1},
		"Calls by user": {Users: users(1)},
	} {
		assert.NotEmpty(t, lineWith(Page{}.Status(&s), heading), heading)
	}
	for _, s := range []Status{
		{Warnings: []string{"w"}}, {broken: []string{"b"}}, {denied: []figures.Failure{{Method: "m"}}},
		{Warnings: []string{"w"}, broken: []string{"b"}}, {broken: []string{"b"}, denied: []figures.Failure{{Method: "m"}}}, {Warnings: []string{"w"}, denied: []figures.Failure{{Method: "m"}}},
	} {
		page := Page{}.Status(&s)
		assert.Equal(t, 1, strings.Count(page, "\nWarnings\n"), page)
		assert.Equal(t, len(s.Warnings), strings.Count(page, "\n! w\n"))
		assert.Equal(t, len(s.broken), strings.Count(page, "\n? b\n"))
		assert.Equal(t, len(s.denied), strings.Count(page, "do not permit it: m\n"))
	}
	assert.NotContains(t, Page{}.Status(&Status{Users: users(8)}), "more")
	page := Page{}.Status(&Status{Users: users(10)})
	assert.Equal(t, 8, strings.Count(page, "\nuser"))
	assert.Equal(t, "and 2 more", lineWith(page, "more"))
	assert.Equal(t, "and 1 more", lineWith(Page{}.Status(&Status{Users: users(9)}), "more"))
	long := Page{}.Status(&Status{Users: []User{{Name: strings.Repeat("x", 24), Calls: 1}, {Name: strings.Repeat("y", 25)}}})
	assert.Equal(t, "xxxxxxxxxxxxxxxxxxxxxxxx            1            0            0", lineWith(long, "xxx"))
	assert.Equal(t, "yyyyyyyyyyyyyyyyyyyyyyy…            0            0            0", lineWith(long, "yyy"))
}

func TestColorsFollowTheState(t *testing.T) {
	page := Page{Colours: true}.Status(&Status{Up: true, Release: "v26.05", Warnings: []string{"w"}, broken: []string{"b"}})
	assert.Equal(t, "\x1b[1mSPDK v26.05\x1b[0m\n\nVolumes      0, and 0 snapshots\n", page[:strings.Index(page, "Exports")])
	assert.Equal(t, "\n\x1b[1mWarnings\x1b[0m\n\x1b[33m! w\x1b[0m\n? b\n", page[strings.Index(page, "\n\x1b[1mWarnings"):])
	down := Page{Colours: true}.Status(&Status{State: "unreachable"})
	assert.Equal(t, "\x1b[31mTarget unreachable\x1b[0m\n", down)
	for _, c := range []struct {
		free, committed uint64
		colour          string
	}{
		{100, 0, green}, {26, 100, green}, {25, 100, yellow}, {11, 100, yellow}, {10, 100, red}, {0, 100, red}, {100, 101, yellow}, {10, 101, red},
	} {
		page := Page{Colours: true}.Status(&Status{Stores: []Store{{Name: "lvs", Size: 100, Free: c.free, Committed: c.committed}}})
		assert.Contains(t, lineWith(page, "lvs"), "[\x1b["+c.colour+"m", "free %d, committed %d", c.free, c.committed)
	}
}

// On a narrow terminal, names are shortened first, then bars, and finally figures.
func TestStoresFitTheWidth(t *testing.T) {
	store := Store{Name: "abcdefghijklmnopqrstuvwxyz", Size: 100, Free: 50, Committed: 75, Volumes: 1}
	for width, want := range map[int]string{
		0:   "abcdefghijklmnopqrs… [############------......]  50 % of 100 B, 75 % provisioned, 1 volume, 0 snapshots",
		1:   "abc… [##-.]…",
		12:  "abc… [##-.]…",
		30:  "abcdefghi… [####--..]  50 % o…",
		31:  "abcdefghi… [#####--..]  50 % o…",
		60:  "abcdefghijklmnopqrs… [############------......]  50 % of 10…",
		120: "abcdefghijklmnopqrs… [############------......]  50 % of 100 B, 75 % provisioned, 1 volume, 0 snapshots",
	} {
		page := Page{Width: width}.Status(&Status{Stores: []Store{store}})
		assert.Equal(t, want, lineWith(page, "["), "%d columns", width)
	}
	short := Page{}.Status(&Status{Stores: []Store{{Name: "", Size: 0}, {Name: "l", Size: 8, Committed: 8}}})
	assert.Contains(t, short, "  [........................]   0 % of 0 B, 0 % provisioned, 0 volumes, 0 snapshots\n", "a store without a size")
	assert.Contains(t, short, "l [########################] 100 % of 8 B, 100 % provisioned, 0 volumes, 0 snapshots\n")
	unnamed := Page{}.Status(&Status{Stores: []Store{{Size: 8, Free: 8}}})
	assert.Equal(t, " [........................]   0 % of 8 B, 0 % provisioned, 0 volumes, 0 snapshots", lineWith(unnamed, "["))
}

func TestFiguresCauseWarnings(t *testing.T) {
	of := func(f figures.Figures) *Status {
		f.Up = true
		s, err := NewStatus(&f, "")
		require.NoError(t, err)
		return s
	}
	store := func(free uint64) figures.Figures {
		return figures.Figures{Stores: []figures.Store{{Name: "lvs", ClusterSize: 1, Clusters: 100, Free: free}}}
	}
	assert.Empty(t, of(store(11)).Warnings)
	assert.Equal(t, []string{"lvstore lvs is 90 % full"}, of(store(10)).Warnings)
	assert.Empty(t, of(figures.Figures{Stores: []figures.Store{{Name: "lvs"}}}).Warnings, "a store without a size")
	assert.Empty(t, of(figures.Figures{Buffers: []figures.BufferPool{{Retries: 0}}}).Warnings)
	assert.Contains(t, of(figures.Figures{Buffers: []figures.BufferPool{{Retries: 1}}}).Warnings[0], "wait for free buffers 1 time ")

	idle := of(figures.Figures{Reactors: []figures.Reactor{{}}})
	assert.Equal(t, []any{1, 0.0}, []any{idle.Cores, idle.Busy}, "a reactor that has not counted yet")
	assert.InDelta(t, 0.25, of(figures.Figures{Reactors: []figures.Reactor{{Busy: 0.1, Idle: 0.3}}}).Busy, 1e-9)

	denied := of(figures.Figures{Failures: []figures.Failure{{Method: "nvmf_get_stats", Err: &spdkrpc.Error{Kind: spdkrpc.Denied}}}})
	page := Page{}.Status(denied)
	assert.Contains(t, page, "do not permit it: nvmf_get_stats\n")
	assert.NotContains(t, page, "Connections", "nothing is known about them")
	assert.Len(t, denied.Missing, 1)
}

func TestMetricsCauseWarnings(t *testing.T) {
	of := func(name, labels string, value float64) []string {
		s, err := NewStatus(&figures.Figures{Up: true, Taken: taken}, fmt.Sprintf("# TYPE spdk_proxy_%[1]s gauge\nspdk_proxy_%[1]s%[2]s %[3]f\n", name, labels, value))
		require.NoError(t, err)
		return s.Warnings
	}
	in := func(d time.Duration) float64 { return float64(taken.Add(d).Unix()) }
	const days = 24 * time.Hour
	for _, c := range []struct {
		name, labels string
		quiet, warns float64
		text         string
	}{
		{"target_config_save_failed", "", 0, 1, "could not be saved"},
		{"target_config_missing", "", 0, 1, "lacks 1 call of"},
		{"target_config_not_restorable", "", 0, 1, "would not restore 1 RAID"},
		{"target_config_chosen", "", 0, 1, "another saved configuration was chosen"},
		{"config_last_reload_successful", "", 1, 0, "refused its new configuration"},
		{"target_loads_what_hosts_write", `{accepted="false"}`, 0, 1, "bdev_auto_examine"},
		{"target_shared", "", 0, 1, "another spdk-proxy serves this target"},
		{"learning_users", "", 0, 1, ": 1 user"},
		{"certificate_expiry_timestamp_seconds", `{certificate="server"}`, in(14 * days), in(14*days - time.Second), "certificate server expires on 2026-12-07"},
		{"token_expiry_timestamp_seconds", `{user="csi"}`, in(14 * days), in(-days), "a token of csi expires on 2026-11-22"},
	} {
		assert.Empty(t, of(c.name, c.labels, c.quiet), c.name)
		warnings := of(c.name, c.labels, c.warns)
		require.Len(t, warnings, 1, c.name)
		assert.Contains(t, warnings[0], c.text)
	}
	assert.Empty(t, of("target_loads_what_hosts_write", `{accepted="true"}`, 1))
	assert.Len(t, of("target_config_missing", "", 1), 1)
}

func TestStatusIsWrittenAsJSONAndYAML(t *testing.T) {
	s := &Status{State: "runtime", Cores: 2}
	text, err := s.JSON()
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), "{\n  \"time\"") && strings.HasSuffix(string(text), "}\n"), "%s", text)
	text, err = s.YAML()
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(text), "---\n"), "%s", text)
	assert.Contains(t, string(text), "\ncores: 2\n")
	s.Busy = math.NaN()
	_, err = s.JSON()
	require.Error(t, err)
	_, err = s.YAML()
	require.Error(t, err)
}

func TestUsersAreSortedByCalls(t *testing.T) {
	s, err := NewStatus(&figures.Figures{Up: true}, `# TYPE spdk_proxy_calls_total counter
spdk_proxy_calls_total{user="b",method="m",outcome="ok"} 1
spdk_proxy_calls_total{user="a",method="m",outcome="ok"} 1
spdk_proxy_calls_total{user="c",method="m",outcome="over_quota"} 2
`)
	require.NoError(t, err)
	assert.Equal(t, []User{{"c", 2, 2, 2}, {"a", 1, 0, 0}, {"b", 1, 0, 0}}, s.Users)
}

func TestRatesAreComputed(t *testing.T) {
	r := Rate{Reads: 30, Writes: 10, BytesRead: 5, Written: 7, ReadTime: 2, WriteTime: 6}
	assert.InDelta(t, 40, r.IOPS(), 0)
	assert.InDelta(t, 12, r.Throughput(), 0)
	assert.InDelta(t, 3, r.Latency(), 1e-9, "weighted by operations")
	assert.Zero(t, Rate{ReadTime: 1}.Latency())

	before := &figures.Figures{Clock: 10, Bdevs: []figures.Bdev{{Name: "b", IO: figures.IO{Read: op(9, 900, 9)}}}}
	rates := func(clock float64, io figures.IO) []Rate {
		return Rates(before, &figures.Figures{Clock: clock, Bdevs: []figures.Bdev{{Name: "b", IO: io}}}, "iops", true)
	}
	assert.Equal(t, []Rate{{Name: "b", Reads: 2, BytesRead: 200, ReadTime: 3}}, rates(10.5, figures.IO{Read: op(10, 1000, 12)}), "half a second")
	assert.Empty(t, rates(9, figures.IO{}))
	assert.Equal(t, []Rate{{Name: "b"}}, rates(11, figures.IO{Read: op(8, 100, 1)}), "counting has begun anew")
	assert.Equal(t, []Rate{{Name: "b"}}, rates(11, figures.IO{Read: op(9, 900, 9)}), "no operation")
}

func TestTopFitsTheWidth(t *testing.T) {
	rates := []Rate{{Name: "abcdefghijklmnopqrst", Reads: 1, WriteTime: 0.002, ReadTime: 0.5}}
	for width, want := range map[int]string{
		0:  "abcdefghijklmnopqrst        1        0      0.0      0.0   500.00     2.00",
		70: "abcdefghijklmno…        1        0      0.0      0.0   500.00     2.00",
		66: "abcdefghijk…        1        0      0.0      0.0   500.00     2.00",
		65: "abcdefghijk…        1        0      0.0      0.0   500.00     2.…",
		90: "abcdefghijklmnopqrst        1        0      0.0      0.0   500.00     2.00",
		1:  "…",
	} {
		lines := strings.Split(Page{Width: width}.Top("t", rates, 5), "\n")
		assert.Equal(t, want, lines[2], "%d columns", width)
	}
	assert.Equal(t, "x                   0        0      0.0      0.0     0.00     0.00", strings.Split(Page{}.Top("t", []Rate{{Name: "x"}}, 1), "\n")[2])
}
