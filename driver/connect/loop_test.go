package connect

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

// simulation is the data directory of a simulated target.
type simulation struct {
	t   *testing.T
	dir string
}

func newSimulation(t *testing.T) *simulation {
	s := &simulation{t: t, dir: t.TempDir()}
	s.file(simulationMarker, "")
	return s
}

func (s *simulation) file(path, text string) {
	path = filepath.Join(s.dir, path)
	require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(s.t, os.WriteFile(path, []byte(text), 0o600))
}

// export adds a volume and exports it to hosts.
func (s *simulation) export(target, id string, sizeMiB int64, hosts ...string) {
	s.file("lvols/"+id, "")
	s.resize(id, sizeMiB)
	dir := "exports/" + url.PathEscape(target)
	s.file(dir+"/hosts", strings.Join(hosts, "\n")+"\n")
	require.NoError(s.t, os.MkdirAll(filepath.Join(s.dir, dir, "namespaces"), 0o700))
	require.NoError(s.t, os.Symlink(filepath.Join(s.dir, "lvols", id), filepath.Join(s.dir, dir, "namespaces", id)))
}

func (s *simulation) unexport(target string) {
	require.NoError(s.t, os.RemoveAll(filepath.Join(s.dir, "exports", url.PathEscape(target))))
}

func (s *simulation) resize(id string, sizeMiB int64) {
	require.NoError(s.t, os.Truncate(filepath.Join(s.dir, "lvols", id), sizeMiB*mib))
}

func (s *simulation) of(target, id string) Export {
	e := Export{Transport: Loop, NQN: target, NSUUID: id, LoopDir: s.dir}
	if strings.HasPrefix(target, "iqn.") {
		e.NQN, e.IQN = "", target
	}
	return e
}

func loopConnector(t *testing.T, e ...Export) Watcher { return loopConnectorOf(t, "worker-1", e...) }

// loopConnectorOf returns a node's connector. The given exports are disconnected when the test
// ends.
func loopConnectorOf(t *testing.T, node string, e ...Export) Watcher {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for loop devices: run as root, or sudo -E make test")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("needs loop devices: modprobe loop, and give the container /dev (%v)", err)
	}
	c, err := New(HostOf(node), Options{AllowLoop: true, Log: testLog(t)})
	require.NoError(t, err)
	for _, e := range e {
		t.Cleanup(func() { require.NoError(t, c.Disconnect(context.Background(), e)) })
	}
	return c
}

func TestLoopConnectAndDisconnect(t *testing.T) {
	for _, target := range []string{nqn1, iqn1, "nqn.2026-11.io.x:a/b"} {
		t.Run(url.PathEscape(target), func(t *testing.T) {
			s, host := newSimulation(t), HostOf("worker-1")
			e := s.of(target, uuid1)
			c := loopConnector(t, e)
			_, err := c.Connect(t.Context(), e)
			require.ErrorIs(t, err, ErrNoSubsystem)
			s.export(target, uuid1, 8, nameFor(HostOf("another"), e))
			_, err = c.Connect(t.Context(), e)
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, nameFor(host, e))
			s.file("exports/"+url.PathEscape(target)+"/hosts", "x\n"+nameFor(host, e)+"\n")

			_, err = c.Find(t.Context(), e)
			require.ErrorIs(t, err, ErrNotConnected)
			require.NoError(t, c.Disconnect(t.Context(), e), "it was never connected")
			d, err := c.Connect(t.Context(), e)
			require.NoError(t, err)
			assert.Equal(t, int64(8*mib), d.SizeBytes)
			assert.Equal(t, uuid1, d.UUID)
			again, err := c.Connect(t.Context(), e)
			require.NoError(t, err)
			assert.Equal(t, d, again)

			require.NoError(t, os.WriteFile(d.Path, []byte("through the device"), 0))
			device, err := os.OpenFile(d.Path, os.O_RDWR, 0)
			require.NoError(t, err)
			require.NoError(t, device.Sync())
			require.NoError(t, device.Close())
			b, err := os.ReadFile(filepath.Join(s.dir, "lvols", uuid1))
			require.NoError(t, err)
			assert.Equal(t, "through the device", string(b[:18]))

			s.resize(uuid1, 16)
			began := time.Now()
			size, err := c.Rescan(t.Context(), e, 16*mib)
			require.NoError(t, err)
			assert.EqualValues(t, 16*mib, size)
			requireTooSmall(t, severalTimes(began), func(ctx context.Context) error {
				_, err := c.Rescan(ctx, e, 17*mib)
				return err
			})

			s.unexport(target)
			require.NoError(t, c.Disconnect(t.Context(), e), "the target removed the export first")
			require.NoError(t, c.Disconnect(t.Context(), e))
			out, err := exec.Command("losetup", "--associated", filepath.Join(s.dir, "lvols", uuid1)).CombinedOutput()
			require.NoError(t, err)
			assert.Empty(t, string(out))
			_, err = c.Rescan(t.Context(), e, 1)
			require.ErrorIs(t, err, ErrNotConnected)
		})
	}
}

// requireTooSmall requires that a rescan fails with the advice to resize the volume. On a busy
// machine, the deadline may pass first; in that case, the rescan is repeated with more time.
func requireTooSmall(t *testing.T, limit time.Duration, rescan func(ctx context.Context) error) {
	t.Helper()
	const advice = "resize the volume on the target first"
	var err error
	for ; limit < 2*time.Minute; limit *= 3 {
		err = rescan(soon(t, limit))
		require.ErrorIs(t, err, ErrTimeout)
		if strings.Contains(err.Error(), advice) {
			return
		}
	}
	require.ErrorContains(t, err, advice)
}

func TestLoopRejectsInvalidExports(t *testing.T) {
	s := newSimulation(t)
	s.export(nqn1, uuid1, 8, "*")
	e := s.of(nqn1, uuid1)
	c, err := New(HostOf("worker-1"), Options{})
	require.NoError(t, err)
	_, err = c.Connect(t.Context(), e)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "loop devices allowed")
	require.ErrorIs(t, c.Disconnect(t.Context(), e), ErrUnsupported)
	_, err = c.Find(t.Context(), e)
	require.ErrorIs(t, err, ErrUnsupported)

	host := HostOf("worker-1")
	require.NoError(t, os.Remove(filepath.Join(s.dir, simulationMarker)))
	_, _, err = simulatedVolume(e, host)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, simulationMarker)
	s.file(simulationMarker, "")
	_, _, err = simulatedVolume(e, host)
	require.NoError(t, err)
	e.NSUUID = uuid2
	_, _, err = simulatedVolume(e, host)
	require.ErrorIs(t, err, ErrNoNamespace)
	escape := filepath.Join(s.dir, "exports", url.PathEscape(nqn1), "namespaces", uuid2)
	require.NoError(t, os.Symlink("/etc/hostname", escape))
	_, _, err = simulatedVolume(e, host)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "outside the data directory")
	require.NoError(t, os.Remove(escape))
	require.NoError(t, os.Symlink(filepath.Join(s.dir, "lvols", "gone"), escape))
	_, _, err = simulatedVolume(e, host)
	require.ErrorIs(t, err, ErrNoNamespace)
	e.LoopDir = "/missing"
	_, _, err = simulatedVolume(e, host)
	require.ErrorIs(t, err, ErrUnreachable)
}

// severalTimes returns a generous multiple of the duration of a call that has just ended. Calls of
// the loop connector make system calls on a real device, which may take seconds on a busy machine.
func severalTimes(began time.Time) time.Duration { return max(5*time.Second, 10*time.Since(began)) }

func TestLoopDeviceInUseIsNotDetached(t *testing.T) {
	s := newSimulation(t)
	s.export(nqn1, uuid1, 8, "*")
	e := s.of(nqn1, uuid1)
	c := loopConnector(t, e)
	d, err := c.Connect(t.Context(), e)
	require.NoError(t, err)
	held, err := os.OpenFile(d.Path, os.O_RDONLY|os.O_EXCL, 0)
	require.NoError(t, err)
	began := time.Now()
	require.ErrorIs(t, c.Disconnect(t.Context(), e), ErrBusy)
	require.NoError(t, held.Close())

	// If a device is open, but not exclusively, the kernel detaches it only when it is closed.
	open, err := os.Open(d.Path)
	require.NoError(t, err)
	err = c.Disconnect(soon(t, severalTimes(began)), e)
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorIs(t, err, ErrTimeout)
	require.NoError(t, open.Close())
	require.NoError(t, c.Disconnect(t.Context(), e))

	// A loop device that losetup attached to the same file would be a second cache of the volume's
	// data, so Connect fails.
	out, err := exec.Command("losetup", "--find", "--show", filepath.Join(s.dir, "lvols", uuid1)).Output()
	require.NoError(t, err)
	foreign := strings.TrimSpace(string(out))
	defer exec.Command("losetup", "--detach", foreign).Run()
	_, err = c.Connect(t.Context(), e)
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "losetup -d "+foreign)
	require.NoError(t, c.Disconnect(t.Context(), e), "Disconnect does not detach it")
	require.NoError(t, exec.Command("losetup", foreign).Run())
}

// Two hosts on one machine have separate devices for a volume, and each host disconnects only its
// own device.
func TestTwoHostsHaveSeparateLoopDevices(t *testing.T) {
	s := newSimulation(t)
	s.export(nqn1, uuid1, 8, "*")
	e := s.of(nqn1, uuid1)
	one, two := loopConnectorOf(t, "worker-1", e), loopConnectorOf(t, "worker-2", e)
	first, err := one.Connect(t.Context(), e)
	require.NoError(t, err)
	second, err := two.Connect(t.Context(), e)
	require.NoError(t, err)
	assert.NotEqual(t, first.Path, second.Path)
	require.NoError(t, one.Disconnect(t.Context(), e))
	_, err = one.Find(t.Context(), e)
	require.ErrorIs(t, err, ErrNotConnected)
	found, err := two.Find(t.Context(), e)
	require.NoError(t, err)
	assert.Equal(t, second, found)
}

// Every volume is attached to exactly one loop device, regardless of how many concurrent calls
// connect it.
func TestConcurrentCallsShareOneLoopDevice(t *testing.T) {
	s := newSimulation(t)
	var all []Export
	for i := range 12 {
		id := fmt.Sprintf("0b6a4b3e-2f1d-4c5a-9e8f-0000000000%02d", i)
		target := "nqn.2026-11.io.x:" + id
		s.export(target, id, int64(4+i), "*")
		all = append(all, s.of(target, id))
	}
	c, other := loopConnector(t, all...), loopConnector(t)
	var mu sync.Mutex
	devices := map[string]string{}
	var wg sync.WaitGroup
	for i, e := range all {
		for _, of := range []Connector{c, c, other} { // other represents another process
			wg.Go(func() {
				d, err := of.Connect(t.Context(), e)
				if assert.NoError(t, err) {
					assert.Equal(t, int64(4+i)*mib, d.SizeBytes)
					mu.Lock()
					devices[d.Path] = e.NSUUID
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	assert.Len(t, devices, len(all))
	for _, e := range all {
		wg.Go(func() {
			assert.NoError(t, c.Disconnect(t.Context(), e))
			assert.NoError(t, c.Disconnect(t.Context(), e))
		})
	}
	wg.Wait()
}
