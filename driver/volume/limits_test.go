package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Limits count as set if the target reports the same values. Unset limits are not compared.
func TestUnchangedLimitsAreNotSetAgain(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	limits := class.Limits{IOPS: new(uint64(2000)), ReadMiBPerSecond: new(uint64(20))}
	require.NoError(t, b.Limit(t.Context(), v, limits))
	v, err := b.Get(t.Context(), v.UUID)
	require.NoError(t, err)
	assert.Equal(t, spdkrpc.BdevRateLimits{RWIOsPerSec: 2000, RMbytesPerSec: 20}, v.Limits)
	calls := b.fault.Calls()
	for _, same := range []class.Limits{limits, {IOPS: new(uint64(2000))}, {WriteMiBPerSecond: new(uint64(0))}, {}} {
		require.NoError(t, b.Limit(t.Context(), v, same))
	}
	assert.Equal(t, calls, b.fault.Calls(), "the volume already has these limits")
}

func TestLimitsDifferIfAnyLimitDiffers(t *testing.T) {
	now := spdkrpc.BdevRateLimits{RWIOsPerSec: 1000, RWMbytesPerSec: 2, RMbytesPerSec: 3, WMbytesPerSec: 4}
	same := func() class.Limits {
		return class.Limits{IOPS: new(uint64(1000)), MiBPerSecond: new(uint64(2)), ReadMiBPerSecond: new(uint64(3)), WriteMiBPerSecond: new(uint64(4))}
	}
	assert.True(t, hasLimits(now, same()))
	for name, change := range map[string]func(*class.Limits){
		"operations": func(l *class.Limits) { *l.IOPS = 2000 },
		"transfer":   func(l *class.Limits) { *l.MiBPerSecond = 0 },
		"reads":      func(l *class.Limits) { *l.ReadMiBPerSecond = 30 },
		"writes":     func(l *class.Limits) { *l.WriteMiBPerSecond = 1 },
	} {
		l := same()
		change(&l)
		assert.False(t, hasLimits(now, l), name)
	}
}
