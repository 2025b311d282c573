package class

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each numeric parameter accepts its minimum and maximum, and rejects all values outside that
// range.
func TestNumbersOutOfBoundsAreRejected(t *testing.T) {
	for key, bounds := range map[string][2]int{
		"ctrl_loss_tmo": {1, 86400}, "reconnect_delay": {1, 3600}, "keep_alive_tmo": {1, 3600}, "fast_io_fail_tmo": {1, 86400},
		"nr_io_queues": {1, 1024}, "queue_size": {16, 1024},
	} {
		for n, ok := range map[int]bool{bounds[0] - 1: false, bounds[0]: true, bounds[1]: true, bounds[1] + 1: false} {
			_, err := Parse(map[string]string{key: strconv.Itoa(n)}, nil)
			assert.Equal(t, ok, err == nil, "%s=%d", key, n)
		}
	}
	for key, step := range map[string]uint64{"qosIOPS": 1000, "qosMiBPerSecond": 1, "qosReadMiBPerSecond": 1, "qosWriteMiBPerSecond": 1} {
		most := uint64(maxLimit) / step * step
		for n, ok := range map[uint64]bool{0: true, step: true, most: true, most + step: false, maxLimit + 1: false, step + 1: step == 1} {
			_, err := ParseMutable(map[string]string{key: strconv.FormatUint(n, 10)})
			assert.Equal(t, ok, err == nil, "%s=%d", key, n)
		}
	}
}

func TestContradictoryTimeoutsAreRejected(t *testing.T) {
	for _, c := range []struct {
		loss, delay string
		ok          bool
	}{{"1", "1", true}, {"1", "2", false}, {"30", "30", true}, {"-1", "3600", true}, {"", "3600", true}} {
		given := map[string]string{"reconnect_delay": c.delay, "ctrl_loss_tmo": c.loss}
		if c.loss == "" {
			delete(given, "ctrl_loss_tmo")
		}
		_, err := Parse(given, nil)
		assert.Equal(t, c.ok, err == nil, given)
	}
	_, err := Parse(map[string]string{"ctrl_loss_tmo": "x"}, nil)
	require.ErrorContains(t, err, "1 to 86400, or -1 for unlimited")
	_, err = Parse(map[string]string{"keep_alive_tmo": "x"}, nil)
	require.ErrorContains(t, err, "1 to 3600")
	require.NotContains(t, err.Error(), "unlimited")
}

func TestClassAllowsOnlyItsLvstores(t *testing.T) {
	labels := map[string]string{"disk": "nvme", "rack": ""}
	for _, c := range []struct {
		class Class
		want  bool
	}{
		{Class{}, true},
		{Class{Targets: []string{"t0"}}, true},
		{Class{Targets: []string{"t1", "t0"}}, true},
		{Class{Targets: []string{"t1"}}, false},
		{Class{TargetLabels: map[string]string{"disk": "nvme", "rack": ""}}, true},
		{Class{TargetLabels: map[string]string{"disk": "hdd"}}, false},
		{Class{TargetLabels: map[string]string{"zone": ""}}, false},
		{Class{TargetLabels: map[string]string{"disk": "nvme"}, Targets: []string{"t1"}}, false},
	} {
		assert.Equal(t, c.want, c.class.Allows("t0", labels), "%+v", c.class)
	}
}
