package proxy

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

// countersOfCalls matches the counters that calls can increase.
var (
	countersOfCalls = regexp.MustCompile(`^spdk_proxy_((?:calls|outcomes|denials|authentication_failures|learned|panics)_total)(?:\{(.*)\})? (\S+)$`)
	label           = regexp.MustCompile(`[a-z]+="[^"]*"`)
)

// counters returns the counters of refused calls, without the label method.
func (v *visitor) counters() map[string]float64 {
	text, err := v.proxy.metrics.Text()
	require.NoError(v.t, err)
	read := map[string]float64{}
	for line := range strings.Lines(text) {
		m := countersOfCalls.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || strings.Contains(m[2], `outcome="ok"`) {
			continue
		}
		labels := slices.DeleteFunc(label.FindAllString(m[2], -1), func(l string) bool { return strings.HasPrefix(l, "method=") })
		slices.Sort(labels)
		n, err := strconv.ParseFloat(m[3], 64)
		require.NoError(v.t, err)
		read[m[1]+"{"+strings.Join(labels, ",")+"}"] += n
	}
	return read
}

// increased returns by how much each counter has increased, omitting unchanged counters.
func (v *visitor) increased(before map[string]float64) map[string]float64 {
	after := v.counters()
	for name, n := range before {
		after[name] -= n
	}
	maps.DeleteFunc(after, func(_ string, n float64) bool { return n == 0 })
	return after
}
