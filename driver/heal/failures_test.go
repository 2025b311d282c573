package heal

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/mirror"
)

// Each failed attempt doubles the time until the next attempt, up to a limit. A successful attempt
// resets the time.
func TestFailedAttemptsBackOff(t *testing.T) {
	f := staged(t)
	v := f.volumes["volume"]
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		v.failed(t.Context(), nothing, errors.New("no API server"))
		assert.Equal(t, want*time.Second, v.pause)
		assert.Equal(t, f.clock.Add(want*time.Second), v.notBefore)
	}
	assert.False(t, v.unfinished, "nothing was changed")
	v.failed(t.Context(), reconnect, errors.New("no route"))
	assert.False(t, v.unfinished, "a connection leaves nothing to finish")
	f.down["uuid-b"] = true
	f.round(t, time.Minute)
	assert.NotEmpty(t, f.round(t, time.Minute))
	assert.Zero(t, v.pause)
	v.failed(t.Context(), drop, errors.New("half done"))
	assert.True(t, v.unfinished)
	assert.Equal(t, time.Second, v.pause)
}

// If any step of a call fails, the call returns that error, and a retry succeeds.
func TestFailedStepsAreReported(t *testing.T) {
	broken := errors.New("broken")
	stage := func(ctx context.Context, f *fake) error { _, err := f.Stage(ctx, testVolume); return err }
	unstage := func(ctx context.Context, f *fake) error { return f.Unstage(ctx, testVolume) }
	for _, c := range []struct {
		step string
		do   func(ctx context.Context, f *fake) error
	}{{"start", stage}, {"stop", unstage}, {"disconnect uuid-a", unstage}, {"disconnect uuid-b", unstage}} {
		f := staged(t)
		f.fail[c.step] = broken
		require.ErrorIs(t, c.do(t.Context(), f), broken, c.step)
		assert.Contains(t, f.after(), c.step)
		delete(f.fail, c.step)
		require.NoError(t, c.do(t.Context(), f), c.step)
		assert.Contains(t, f.after(), c.step)
	}
	f := staged(t)
	v := f.volumes["volume"]
	v.unfinished, f.fail["start"] = true, broken
	assert.Equal(t, []string{"start"}, f.round(t, time.Second))
	assert.Contains(t, f.state(t).Problem, "broken")
	assert.True(t, v.unfinished)
}

// A mirror can start with one replica if the other server refuses connections. If the start fails,
// the error contains the server's error.
func TestUnreachableServerIsNamedIfTheStartFails(t *testing.T) {
	f := newFake(t)
	f.fail["connect uuid-b"] = errors.New("no route")
	_, err := f.Stage(t.Context(), testVolume)
	require.NoError(t, err)
	f.restart(t)
	f.fail["start"] = mirror.ErrWait
	_, err = f.Stage(t.Context(), testVolume)
	require.ErrorIs(t, err, mirror.ErrWait)
	require.ErrorContains(t, err, "server b: no route")
}

// A call waits while another call is using the mirror, until its context ends.
func TestConcurrentCallsForAVolumeWait(t *testing.T) {
	f := staged(t)
	f.volumes["volume"].busy <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.Stage(ctx, testVolume)
	require.ErrorIs(t, err, mirror.ErrWait)
	require.ErrorIs(t, f.Unstage(ctx, testVolume), mirror.ErrWait)
	assert.Empty(t, f.round(t, time.Minute))
	<-f.volumes["volume"].busy
	require.NoError(t, f.Unstage(t.Context(), testVolume))
}

// A connection fails if its device does not appear in time.
func TestConnectWaitsForTheDevice(t *testing.T) {
	f := staged(t)
	v := f.volumes["volume"]
	f.paths = errors.New("sysfs cannot be read")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := v.connect(ctx, testVolume.Replicas[0])
	require.ErrorIs(t, err, errUnknown)
	require.ErrorIs(t, err, f.paths)
}

// Every call refuses a volume with an impossible description.
func TestImpossibleVolumesAreRejected(t *testing.T) {
	for name, change := range map[string]func(r *Replica){
		"number":       func(r *Replica) { r.ID = 3 },
		"same number":  func(r *Replica) { r.ID = 0 },
		"no UUID":      func(r *Replica) { r.UUID = "" },
		"another UUID": func(r *Replica) { r.Export.NSUUID = "uuid-c" },
	} {
		f := newFake(t)
		v := testVolume
		v.Replicas = slices.Clone(v.Replicas)
		change(&v.Replicas[1])
		_, err := f.Stage(t.Context(), v)
		require.ErrorIs(t, err, mirror.ErrInvalid, name)
		require.ErrorIs(t, f.Unstage(t.Context(), v), mirror.ErrInvalid, name)
		require.ErrorIs(t, f.Watch(v), mirror.ErrInvalid, name)
		assert.Empty(t, f.after(), name)
		_, ok := f.State("volume")
		assert.False(t, ok, name)
	}
	f := newFake(t)
	f.NewMirror = func(mirror.Volume, mirror.Options) (Mirror, error) { return nil, mirror.ErrInvalid }
	_, err := f.Stage(t.Context(), testVolume)
	require.ErrorIs(t, err, mirror.ErrInvalid)
}
