package connect

import (
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listening returns the port of a server that accepts connections.
func listening(t *testing.T) string { return serveTCP(t, func(net.Conn) {}) }

// twoListeners returns an export with two addresses that respond, and the kernel's controller
// number for each.
func twoListeners(t *testing.T) Export {
	e := export1
	e.Port, e.More = listening(t), []Address{{Addr: "127.0.0.1", Port: listening(t)}}
	return e
}

// attach adds the controller for an address.
func (k *nvmeKernel) attach(i int, port, state string) {
	k.controller(i, 0, nqn1, k.host.NQN, state, "127.0.0.1")
	k.set(i, "address", "traddr=127.0.0.1,trsvcid="+port)
}

// native makes the kernel report native multipath.
func (k *nvmeKernel) native() { k.file("sys/module/nvme_core/parameters/multipath", "Y\n") }

func TestNVMePathsAreListed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		native  bool
		states  []string // states of the controllers
		wwid    string   // wwid of the namespace; empty if there is no namespace
		live    int
		want    int
		givenUp int
		kind    error
	}{
		{"both", true, []string{"live", "live"}, uuid1, 2, 2, 0, nil},
		{"one path connecting", true, []string{"live", "connecting"}, uuid1, 1, 2, 0, nil},
		{"one path given up", true, []string{"live"}, uuid1, 1, 2, 1, nil},
		{"one path being removed", true, []string{"live", "deleting"}, uuid1, 1, 2, 1, nil},
		{"no live path", true, []string{"connecting", "resetting"}, uuid1, 0, 2, 0, nil},
		{"none", true, nil, "", 0, 2, 2, ErrNotConnected},
		{"another volume", true, []string{"live", "live"}, uuid2, 2, 2, 0, ErrNoNamespace},
		{"no namespace", true, []string{"live", "live"}, "", 2, 2, 0, ErrNoNamespace},
		{"no native multipath", false, []string{"live"}, uuid1, 1, 1, 0, nil},
		{"no native multipath, no path", false, nil, "", 0, 1, 1, ErrNotConnected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, c := newNVMeKernel(t, tt.native)
			if tt.native {
				k.native()
			}
			for i, state := range tt.states {
				k.attach(i, strconv.Itoa(4420+i), state)
			}
			k.controller(8, 8, nqn1, "nqn.2014-08.org.nvmexpress:uuid:someone-else", "live", "127.0.0.1")
			k.controller(9, 9, nqn1+"-other", k.host.NQN, "live", "127.0.0.1")
			if tt.wwid != "" {
				k.namespace(0, 0, 1, "uuid."+tt.wwid, gib)
			}
			p, err := c.Paths(t.Context(), exportTwoPaths)
			require.NoError(t, err)
			assert.Equal(t, tt.live, p.Live())
			assert.Equal(t, tt.want, p.Expected)
			assert.Equal(t, tt.givenUp, p.GivenUp)
			require.ErrorIs(t, p.NoDevice, tt.kind)
			require.Len(t, p.All, len(tt.states))
			for i, state := range tt.states {
				assert.Equal(t, "nvme"+strconv.Itoa(i)+" "+state+" at 127.0.0.1:"+strconv.Itoa(4420+i), p.All[i].String())
			}
			if tt.kind == nil {
				assert.Equal(t, uuid1, p.Device.UUID)
			}
			assert.Empty(t, k.log(), "only read")
		})
	}
	k, c := newNVMeKernel(t, true)
	k.native()
	twice := export1
	twice.More = []Address{{Addr: export1.Address, Port: export1.Port}}
	p, err := c.Paths(t.Context(), twice)
	require.NoError(t, err)
	assert.Equal(t, 1, p.Expected, "one address, listed twice")
	k.blocked("sys/class/nvme")
	_, err = c.Paths(t.Context(), export1)
	require.ErrorContains(t, err, "list NVMe controllers")
	_, err = c.Paths(t.Context(), Export{Transport: "carrier pigeon"})
	require.ErrorIs(t, err, ErrInvalidExport)
}

// If a read hangs in the kernel, the call returns at its deadline, and no second read starts in the
// meantime.
func TestHangingReadsAreNotRepeated(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.attach(0, "4420", "live")
	k.namespace(0, 0, 1, "uuid."+uuid1, gib)
	proceed, entered, rdev := make(chan struct{}), make(chan struct{}, 10), k.node.rdev
	k.node.rdev = func(path string) (uint64, error) { entered <- struct{}{}; <-proceed; return rdev(path) }
	for range 2 {
		_, err := c.Paths(soon(t, 50*time.Millisecond), export1)
		require.ErrorIs(t, err, ErrTimeout)
		_, err = c.Find(soon(t, 50*time.Millisecond), export1)
		require.ErrorIs(t, err, ErrTimeout)
	}
	<-entered
	<-entered
	assert.Empty(t, entered, "one of each")
	close(proceed)
	require.Eventually(t, func() bool {
		p, err := c.Paths(t.Context(), export1)
		return err == nil && p.Device.UUID == uuid1
	}, time.Minute, time.Millisecond)
}

// restores makes the kernel connect, with a namespace behind the new controllers.
func (k *nvmeKernel) restores(t *testing.T, ports []string, wwid string) {
	k.exchange = func(options string) error {
		for i, port := range ports {
			if !strings.Contains(options, "trsvcid="+port+",") {
				continue
			}
			k.attach(i, port, "live")
			if wwid != "" {
				k.namespace(i, 0, 1, "uuid."+wwid, gib)
			}
			return nil
		}
		t.Errorf("unexpected connection: %s", options)
		return syscall.EIO
	}
}

func TestNVMeReconnectRestoresLostPaths(t *testing.T) {
	t.Run("missing path", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.native()
		e := twoListeners(t)
		k.attach(0, e.Port, "live")
		k.namespace(0, 0, 1, "uuid."+uuid1, gib)
		k.restores(t, []string{e.Port, e.More[0].Port}, uuid1)
		require.NoError(t, c.Reconnect(t.Context(), e))
		assert.Len(t, k.log(), 1)
		p, err := c.Paths(t.Context(), e)
		require.NoError(t, err)
		assert.Equal(t, 2, p.Live())
		require.NoError(t, c.Reconnect(t.Context(), e))
		assert.Empty(t, k.log(), "nothing is missing")
	})
	t.Run("path to another volume", func(t *testing.T) {
		for _, wwid := range []string{uuid2, ""} {
			k, c := newNVMeKernel(t, true)
			k.native()
			e := twoListeners(t)
			k.attach(0, e.Port, "live")
			k.namespace(0, 0, 1, "uuid."+uuid1, gib)
			k.exchange = func(string) error {
				k.attach(1, e.More[0].Port, "live")
				if wwid != "" {
					k.file("sys/devices/virtual/nvme-fabrics/ctl/nvme1/nvme0c1n1/wwid", "uuid."+wwid+"\n")
				}
				return nil
			}
			c.transports[TCP].(*nvme).namespaceTimeout = 100 * time.Millisecond
			err := c.Reconnect(t.Context(), e)
			require.ErrorIs(t, err, ErrNoNamespace)
			require.ErrorContains(t, err, "nvme1 live")
			require.ErrorContains(t, err, e.More[0].Port)
			p, err := c.Paths(t.Context(), e)
			require.NoError(t, err)
			require.Len(t, p.All, 1, "the new path is removed")
			assert.Equal(t, "nvme0", p.All[0].Name, "the path in use stays")
		}
	})
	t.Run("other volume in the subsystem", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.native()
		e := twoListeners(t)
		k.attach(0, e.Port, "live")
		k.namespace(0, 0, 1, "uuid."+uuid2, gib)
		require.ErrorIs(t, c.Reconnect(t.Context(), e), ErrNoNamespace)
		assert.Empty(t, k.log())
	})
	t.Run("address does not respond", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.native()
		e := twoListeners(t)
		k.attach(0, e.Port, "live")
		k.namespace(0, 0, 1, "uuid."+uuid1, gib)
		e.More[0].Port = closedPort(t)
		err := c.Reconnect(t.Context(), e)
		require.ErrorIs(t, err, ErrUnreachable)
		require.ErrorContains(t, err, e.More[0].Port)
		assert.Empty(t, k.log())
	})
	t.Run("no native multipath", func(t *testing.T) {
		k, c := newNVMeKernel(t, false)
		e := twoListeners(t)
		k.attach(0, e.Port, "live")
		k.namespace(0, 0, 1, "uuid."+uuid1, gib)
		require.NoError(t, c.Reconnect(t.Context(), e))
		assert.Empty(t, k.log(), "without native multipath, a second controller is a second device")
	})
	t.Run("missing device", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.native()
		e := twoListeners(t)
		answers := e.More[0].Port
		e.Port = closedPort(t)
		k.restores(t, []string{answers}, uuid1)
		require.NoError(t, c.Reconnect(t.Context(), e))
		p, err := c.Paths(t.Context(), e)
		require.NoError(t, err)
		assert.Equal(t, 1, p.Live())
		assert.Len(t, k.log(), 1, "the kernel connects only to the address that answers")
		assert.Equal(t, uuid1, p.Device.UUID)
	})
	t.Run("device of another volume", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		k.native()
		e := twoListeners(t)
		k.restores(t, []string{e.Port, e.More[0].Port}, uuid2)
		c.transports[TCP].(*nvme).namespaceTimeout = 100 * time.Millisecond
		require.ErrorIs(t, c.Reconnect(t.Context(), e), ErrNoNamespace)
		p, err := c.Paths(t.Context(), e)
		require.NoError(t, err)
		assert.Empty(t, p.All, "removed again")
	})
	t.Run("no address responds", func(t *testing.T) {
		k, c := newNVMeKernel(t, true)
		e := export1
		e.Port = closedPort(t)
		require.ErrorIs(t, c.Reconnect(t.Context(), e), ErrUnreachable)
		assert.Empty(t, k.log())
	})
}

func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	require.NoError(t, l.Close())
	return port
}

// iscsid restores a failed session by itself, so Reconnect creates a session only if there is none.
func TestISCSIReconnectRestoresTheSession(t *testing.T) {
	k, c := newISCSIKernel(t)
	p, err := c.Paths(t.Context(), k.export)
	require.NoError(t, err)
	assert.Equal(t, 1, p.GivenUp)
	require.ErrorIs(t, p.NoDevice, ErrNotConnected)

	require.NoError(t, c.Reconnect(t.Context(), k.export))
	assert.NotEmpty(t, k.commands())
	p, err = c.Paths(t.Context(), k.export)
	require.NoError(t, err)
	assert.Equal(t, 1, p.Live())
	assert.Zero(t, p.GivenUp)
	require.NoError(t, p.NoDevice)

	k.file("sys/class/iscsi_session/session1/state", "FAILED\n")
	p, err = c.Paths(t.Context(), k.export)
	require.NoError(t, err)
	assert.Zero(t, p.Live())
	assert.Zero(t, p.GivenUp)
	require.ErrorIs(t, p.NoDevice, ErrUnreachable)
	assert.Equal(t, "session1 FAILED", p.All[0].String())
	require.NoError(t, c.Reconnect(t.Context(), k.export))
	assert.Empty(t, k.commands())
}

func TestLoopReconnectRestoresTheDevice(t *testing.T) {
	s := newSimulation(t)
	e := s.of(nqn1, uuid1)
	c := loopConnector(t, e)
	s.export(nqn1, uuid1, 8, HostOf("worker-1").NQN)
	p, err := c.Paths(t.Context(), e)
	require.NoError(t, err)
	assert.Equal(t, 1, p.GivenUp)
	for range 2 {
		require.NoError(t, c.Reconnect(t.Context(), e))
	}
	p, err = c.Paths(t.Context(), e)
	require.NoError(t, err)
	assert.Equal(t, 1, p.Live())
	assert.Zero(t, p.GivenUp)
	assert.Equal(t, p.Device.Path, "/dev/"+p.All[0].Name)
	require.NoError(t, c.Disconnect(t.Context(), e))
	s.unexport(nqn1)
	require.ErrorIs(t, c.Reconnect(t.Context(), e), ErrNoSubsystem)
}

// The monitor queries the paths of all volumes concurrently. These queries share one view of sysfs;
// other operations never use that view.
func TestConcurrentPathReadsShareOneResult(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.attach(0, "4420", "live")
	k.namespace(0, 0, 1, "uuid."+uuid1, gib)
	view := &c.transports[TCP].(*nvme).view
	view.age = time.Hour
	for _, state := range []string{"live", "connecting"} {
		k.set(0, "state", state)
		p, err := c.Paths(t.Context(), export1)
		require.NoError(t, err)
		assert.Equal(t, 1, p.Live(), "as when it was read")
	}
	other := export1
	other.NQN += "-other"
	p, err := c.Paths(t.Context(), other)
	require.NoError(t, err)
	assert.Empty(t, p.All)
	k.removeController("nvme0")
	_, err = c.Find(t.Context(), export1)
	require.ErrorIs(t, err, ErrNotConnected)
	view.age = 0
	p, err = c.Paths(t.Context(), export1)
	require.NoError(t, err)
	assert.Empty(t, p.All)

	connector, err := New(k.host, Options{})
	require.NoError(t, err)
	assert.Equal(t, time.Second, connector.(*byTransport).transports[TCP].(*nvme).view.age)
}
