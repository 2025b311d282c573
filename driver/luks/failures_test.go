package luks

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each request to the kernel, the device and cryptsetup fails once. The call reports the failure,
// and a retry succeeds.
func TestFailedRequestFailsTheCall(t *testing.T) {
	open := func(ctx context.Context, w *world, v Volume) error { _, err := w.luks().Open(ctx, v); return err }
	opened := func(t *testing.T, w *world, v Volume) { require.NoError(t, open(t.Context(), w, v)) }
	closed := func(t *testing.T, w *world, v Volume) {
		opened(t, w, v)
		require.NoError(t, w.luks().Close(t.Context(), v.Name))
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, w *world, v Volume)
		do      func(ctx context.Context, w *world, v Volume) error
	}{
		"encrypt": {func(*testing.T, *world, Volume) {}, open},
		"open":    {closed, open},
		"open again": {func(t *testing.T, w *world, v Volume) {
			opened(t, w, v)
			w.mappings[v.Name].suspended = true
		}, open},
		"open from another device": {func(t *testing.T, w *world, v Volume) {
			opened(t, w, v)
			w.mappings[v.Name].below = "259:9"
		}, open},
		"change the passphrase": {closed, func(ctx context.Context, w *world, v Volume) error {
			v.Keys = keysOf(second, first)
			return open(ctx, w, v)
		}},
		"close":     {opened, func(ctx context.Context, w *world, v Volume) error { return w.luks().Close(ctx, v.Name) }},
		"resize":    {opened, func(ctx context.Context, w *world, v Volume) error { return w.luks().Resize(ctx, v.Name) }},
		"mark used": {opened, func(ctx context.Context, w *world, v Volume) error { return w.luks().MarkUsed(ctx, v.Name, v.Device) }},
		"compare devices": {opened, func(_ context.Context, w *world, v Volume) error {
			_, err := w.luks().OpenedFromAnother(v.Name, v.Device)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				_, w := newWorld(t)
				v := w.volume()
				v.MayFormat, v.MayFinish = true, true
				c.prepare(t, w, v)
				w.requests, w.failAt = 0, n
				err := c.do(t.Context(), w, v)
				if w.failAt = 0; w.failed == "" {
					require.NoError(t, err)
					require.Greater(t, n, 1)
					return
				}
				where := fmt.Sprintf("request %d: %s", n, w.failed)
				if w.failed != "modprobe dm-crypt" { // the kernel may include the module
					assert.ErrorIs(t, err, errInjected, where)
				}
				require.NoError(t, c.do(t.Context(), w, v), where)
			}
		})
	}
}

func TestUnreadableHeaderIsReported(t *testing.T) {
	dir := t.TempDir()
	_, err := readHeader(dir + "/missing")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = readHeader(dir)
	require.ErrorContains(t, err, "is a directory")
	require.NoError(t, os.WriteFile(dir+"/short", []byte("LUKS"), 0o600))
	h, err := readHeader(dir + "/short")
	require.NoError(t, err)
	assert.Zero(t, h)
}

// emptyDevice is a prober that finds nothing on each device.
type emptyDevice struct{ *world }

func (emptyDevice) Contents(context.Context, string, bool) (string, int64, bool, error) {
	return "", -1, false, nil
}

// A device whose header cannot be read is not formatted.
func TestDeviceWithUnreadableHeaderIsNotFormatted(t *testing.T) {
	l, w := newWorld(t)
	l.prober = emptyDevice{w}
	v := w.volume()
	v.Device, v.MayFormat = t.TempDir(), true
	format, err := l.mustFormat(t.Context(), v)
	require.ErrorContains(t, err, "is a directory")
	assert.False(t, format)
}
