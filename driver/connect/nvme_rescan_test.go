package connect

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNVMeRescanFindsTheNewSize(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	_, err := c.Rescan(t.Context(), export1, gib)
	require.ErrorIs(t, err, ErrNotConnected)
	k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
	k.namespace(0, 0, 1, "uuid."+uuid1, gib)
	size, err := c.Rescan(t.Context(), export1, gib)
	require.NoError(t, err)
	assert.EqualValues(t, gib, size)
	assert.Empty(t, k.log(), "no rescan, because the device is large enough")

	k.onWrite = func(string, string) error {
		time.AfterFunc(50*time.Millisecond, func() { k.namespace(0, 0, 1, "uuid."+uuid1, 2*gib) })
		return nil
	}
	size, err = c.Rescan(t.Context(), export1, 2*gib)
	require.NoError(t, err)
	assert.EqualValues(t, 2*gib, size)
	assert.Equal(t, []string{"sys/class/nvme/nvme0/rescan_controller=1"}, k.log())

	k.onWrite = nil
	requireTooSmall(t, 2*time.Second, func(ctx context.Context) error {
		_, err := c.Rescan(ctx, export1, 3*gib)
		return err
	})
}

// If a write to the kernel hangs, Connect times out, but the write continues in the background. A
// later call removes the controller that the write created.
func TestHangingNVMeConnectTimesOut(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	started, proceed := make(chan struct{}, 1), make(chan struct{})
	k.exchange = func(string) error {
		started <- struct{}{}
		<-proceed
		k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
		k.namespace(0, 0, 1, "uuid."+uuid1, gib)
		return nil
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-started; cancel(ErrTimeout) }()
	_, err := c.Connect(ctx, export1)
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorContains(t, err, "write to /dev/nvme-fabrics")

	err = c.Disconnect(soon(t, 2*time.Second), export1)
	require.ErrorIs(t, err, ErrBusy, "must not report success while a connection may still appear")
	other := export1
	other.NQN = "nqn.2026-11.io.x:other"
	require.NoError(t, c.Disconnect(t.Context(), other), "other targets do not wait")

	close(proceed)
	require.NoError(t, c.Disconnect(t.Context(), export1))
	_, err = c.Find(t.Context(), export1)
	require.ErrorIs(t, err, ErrNotConnected)
	assert.Empty(t, c.operations.Running())
}

func TestNVMeModulesAreLoaded(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	n := c.transports[TCP].(*nvme)
	var ran []string
	n.exec = fakeExec(func(line string) (string, int) { ran = append(ran, line); return "modprobe: FATAL: not found", 1 })
	k.remove("sys/module/nvme_tcp")
	k.exchange = func(string) error {
		k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
		k.namespace(0, 0, 1, "uuid."+uuid1, gib)
		return nil
	}
	_, err := c.Connect(t.Context(), export1)
	require.NoError(t, err, "the module may be built in")
	assert.Equal(t, []string{"modprobe nvme-tcp"}, ran)

	require.NoError(t, c.Disconnect(t.Context(), export1))
	k.remove("dev/nvme-fabrics")
	_, err = c.Connect(t.Context(), export1)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "load the kernel module nvme-tcp")
	require.ErrorContains(t, err, "FATAL: not found")
}
