package connect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilexec "k8s.io/utils/exec"
	testingexec "k8s.io/utils/exec/testing"
)

const gib = 1 << 30

var export1 = Export{Transport: TCP, Address: "127.0.0.1", Port: "4420", NQN: nqn1, NSUUID: uuid1}

// noExec fails the test if a command is run.
type noExec struct{ t *testing.T }

func (e noExec) Command(name string, args ...string) utilexec.Cmd {
	return e.CommandContext(context.Background(), name, args...)
}
func (e noExec) CommandContext(_ context.Context, name string, args ...string) utilexec.Cmd {
	e.t.Errorf("unexpected command %s %v", name, args)
	return nil
}
func (e noExec) LookPath(string) (string, error) { return "", errors.New("no") }

// fakeExec runs a function instead of commands.
type fakeExec func(line string) (output string, exitCode int)

func (e fakeExec) Command(name string, args ...string) utilexec.Cmd {
	return e.CommandContext(context.Background(), name, args...)
}
func (e fakeExec) CommandContext(_ context.Context, name string, args ...string) utilexec.Cmd {
	return &testingexec.FakeCmd{CombinedOutputScript: []testingexec.FakeAction{func() ([]byte, []byte, error) {
		out, code := e(name + " " + strings.Join(args, " "))
		if code != 0 {
			return []byte(out), nil, testingexec.FakeExitError{Status: code}
		}
		return []byte(out), nil, nil
	}}}
}
func (e fakeExec) LookPath(string) (string, error) { return "", nil }

// inFakeTime runs a subtest whose clock advances only while all of its goroutines wait, so that a
// busy machine does not cause timeouts.
func inFakeTime(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestNVMeDeviceIsConnectedAndDisconnected(t *testing.T) {
	for _, multipath := range []bool{true, false} {
		t.Run(fmt.Sprintf("multipath %v", multipath), func(t *testing.T) {
			k, c := newNVMeKernel(t, multipath)
			k.exchange = func(string) error {
				k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
				k.namespace(0, 0, 1, "uuid."+uuid1, gib)
				return nil
			}
			_, err := c.Find(t.Context(), export1)
			require.ErrorIs(t, err, ErrNotConnected)
			require.NoError(t, c.Disconnect(t.Context(), export1), "it was never connected")
			require.Empty(t, k.log())

			d, err := c.Connect(t.Context(), export1)
			require.NoError(t, err)
			assert.Equal(t, Device{Path: k.root + "/dev/nvme0n1", SizeBytes: gib, UUID: uuid1}, d)
			assert.Equal(t, []string{"fabrics=" + fabricsOptions(export1, "127.0.0.1", k.host, NVMeOptions{})}, k.log())
			again, err := c.Connect(t.Context(), export1)
			require.NoError(t, err)
			assert.Equal(t, d, again)
			assert.Empty(t, k.log(), "connected already")
			found, err := c.Find(t.Context(), export1)
			require.NoError(t, err)
			assert.Equal(t, d, found)

			require.NoError(t, c.Disconnect(t.Context(), export1))
			assert.Equal(t, []string{"sys/class/nvme/nvme0/delete_controller=1"}, k.log())
			require.NoError(t, c.Disconnect(t.Context(), export1))
			assert.Empty(t, k.log())
			assert.Empty(t, c.operations.Running(), "no locks are left behind")
		})
	}
}

// Release ends the connections of a device that is in use, which Disconnect refuses.
func TestNVMeReleaseDisconnectsDeviceInUse(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.controller(0, 0, nqn1, k.host.NQN, "connecting", "127.0.0.1")
	k.namespace(0, 0, 1, "uuid."+uuid1, gib)
	k.held["nvme0n1"] = true
	require.ErrorIs(t, c.Disconnect(t.Context(), export1), ErrBusy)
	assert.Empty(t, k.log())
	require.NoError(t, c.Release(t.Context(), export1))
	assert.Equal(t, []string{"sys/class/nvme/nvme0/delete_controller=1"}, k.log())
	require.NoError(t, c.Release(t.Context(), export1), "nothing is attached")
	assert.Empty(t, k.log())
}

func TestNVMeWaitsForTheDevice(t *testing.T) {
	inFakeTime(t, "namespace appears late", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.exchange = func(string) error {
			k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
			time.AfterFunc(50*time.Millisecond, func() { k.namespace(0, 0, 1, "uuid."+uuid1, gib) })
			return nil
		}
		_, err := c.Connect(t.Context(), export1)
		require.NoError(t, err)
	})
	inFakeTime(t, "namespace appears only after a rescan", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.exchange = func(string) error {
			k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
			return nil
		}
		k.onWrite = func(path, _ string) error {
			assert.Equal(t, "sys/class/nvme/nvme0/rescan_controller", path)
			k.namespace(0, 0, 1, "uuid."+uuid1, gib)
			return nil
		}
		_, err := c.Connect(t.Context(), export1)
		require.NoError(t, err)
	})
	inFakeTime(t, "old controller is removed", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.controller(0, 0, nqn1, k.host.NQN, "deleting (no IO)", "127.0.0.1")
		time.AfterFunc(50*time.Millisecond, func() { k.removeController("nvme0") })
		k.exchange = func(string) error {
			k.controller(1, 1, nqn1, k.host.NQN, "live", "127.0.0.1")
			k.namespace(1, 1, 1, "uuid."+uuid1, gib)
			return nil
		}
		d, err := c.Connect(t.Context(), export1)
		require.NoError(t, err)
		assert.Equal(t, k.root+"/dev/nvme1n1", d.Path)
	})
	inFakeTime(t, "old controller is never removed", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.controller(0, 0, nqn1, k.host.NQN, "deleting (no IO)", "127.0.0.1")
		_, err := c.Connect(soon(t, 2*time.Second), export1)
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorContains(t, err, "nvme0 is deleting")
	})
	inFakeTime(t, "controller is reconnecting", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.controller(0, 0, nqn1, k.host.NQN, "connecting", "127.0.0.1")
		k.namespace(0, 0, 1, "uuid."+uuid1, gib)
		_, err := c.Connect(soon(t, 2*time.Second), export1)
		require.ErrorIs(t, err, ErrTimeout, "the device exists, but its target is unreachable")
		require.ErrorContains(t, err, "nvme0 connecting at 127.0.0.1:4420")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, k.log(), "a controller that existed before stays")
		time.AfterFunc(50*time.Millisecond, func() { k.set(0, "state", "live") })
		_, err = c.Connect(t.Context(), export1)
		require.NoError(t, err)
	})
	inFakeTime(t, "kernel removes the controller", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.controller(0, 0, nqn1, k.host.NQN, "connecting", "127.0.0.1")
		time.AfterFunc(50*time.Millisecond, func() { k.removeController("nvme0") })
		_, err := c.Connect(t.Context(), export1)
		require.ErrorIs(t, err, ErrNotConnected)
	})
}

func TestFailedNVMeConnectIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.exchange = func(string) error {
			k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
			k.namespace(0, 0, 1, "uuid."+uuid2, gib)
			return nil
		}
		_, err := c.Connect(soon(t, 2*time.Second), export1)
		require.ErrorIs(t, err, ErrNoNamespace)
		require.ErrorContains(t, err, "nvme0n1 ("+uuid2+")", "the error lists the namespaces")
		assert.Contains(t, k.log(), "sys/class/nvme/nvme0/delete_controller=1")

		// Another volume of the subsystem is now using the connection.
		k.held["nvme0n1"] = true
		_, err = c.Connect(soon(t, 2*time.Second), export1)
		require.ErrorIs(t, err, ErrNoNamespace)
		assert.NotContains(t, k.log(), "sys/class/nvme/nvme0/delete_controller=1")
	})
}

func TestNVMeConnectReusesExistingController(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.exchange = func(string) error { // another process created the controller first
		k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
		k.namespace(0, 0, 1, "uuid."+uuid1, gib)
		return syscall.EALREADY
	}
	_, err := c.Connect(t.Context(), export1)
	require.NoError(t, err)
}

func TestSecondNVMeAddressAddsAPath(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.controller(0, 0, nqn1, k.host.NQN, "live", "10.9.9.9")
	k.namespace(0, 0, 1, "uuid."+uuid1, gib)
	k.exchange = func(string) error {
		k.controller(1, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
		return nil
	}
	d, err := c.Connect(t.Context(), export1)
	require.NoError(t, err)
	assert.Equal(t, k.root+"/dev/nvme0n1", d.Path, "one device with two paths")
	require.NoError(t, c.Disconnect(t.Context(), export1))
	assert.Subset(t, k.log(), []string{"sys/class/nvme/nvme0/delete_controller=1", "sys/class/nvme/nvme1/delete_controller=1"})
}

func TestNVMeDisconnectKeepsSharedConnection(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
	ours := k.namespace(0, 0, 1, "uuid."+uuid1, gib)
	other := k.namespace(0, 0, 2, "uuid."+uuid2, gib)

	k.held[ours] = true
	require.ErrorIs(t, c.Disconnect(t.Context(), export1), ErrBusy)
	delete(k.held, ours)
	published := "30 20 0:5 /%s /var/lib/kubelet/pods/1/dev rw,nosuid - devtmpfs udev rw\n"
	k.file("proc/self/mountinfo", fmt.Sprintf(published, ours))
	err := c.Disconnect(t.Context(), export1)
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "/var/lib/kubelet/pods/1/dev")

	k.file("proc/self/mountinfo", fmt.Sprintf(published, other))
	require.NoError(t, c.Disconnect(t.Context(), export1))
	k.file("proc/self/mountinfo", "")
	k.held[other] = true
	require.NoError(t, c.Disconnect(t.Context(), export1))
	gone := export1
	gone.NSUUID = "99999999-2222-4333-8444-555555555555"
	require.NoError(t, c.Disconnect(t.Context(), gone), "its namespace was removed, and the other stays connected")
	gone.NSUUID = ""
	require.ErrorIs(t, c.Disconnect(t.Context(), gone), ErrBusy, "each of them may be the volume's")
	assert.Empty(t, k.log())

	delete(k.held, other)
	require.NoError(t, c.Disconnect(t.Context(), export1))
	assert.Equal(t, []string{"sys/class/nvme/nvme0/delete_controller=1"}, k.log())
}
