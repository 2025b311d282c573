package connect

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// If the state of a loop device cannot be read, Find, Connect and Disconnect fail.
func TestUnreadableLoopDevicesFailCalls(t *testing.T) {
	s := newSimulation(t)
	s.export(nqn1, uuid1, 8, "*")
	e := s.of(nqn1, uuid1)
	every := []string{"find", "connect", "rescan", "disconnect"}
	for says, c := range map[string]struct {
		spoil func(k *kernel)
		fail  []string
	}{
		"list loop devices": {func(k *kernel) { k.blocked("sys/block") }, every},
		"status of loop7":   {func(k *kernel) { k.dir("sys/block/loop7/loop"); k.file("dev/loop7", "") }, every},
		"no loop devices":   {func(*kernel) {}, []string{"connect"}},
		// Other disks, free loop devices, and devices that have just disappeared are skipped.
		"no loop device is attached to": {func(k *kernel) {
			k.dir("sys/block/sda")
			k.file("dev/sda", "")
			k.dir("sys/block/loop7")
			k.file("dev/loop7", "")
			k.dir("sys/block/loop8/loop")
		}, []string{"find", "rescan"}},
	} {
		k := newKernel(t)
		connector, err := New(HostOf("worker-1"), Options{Root: k.root, AllowLoop: true, Log: testLog(t)})
		require.NoError(t, err)
		c.spoil(k)
		for _, o := range operations(t, connector, e, 8*mib) {
			if slices.Contains(c.fail, o.name) {
				require.ErrorContains(t, o.do(), says, o.name)
			}
		}
	}
	require.NoError(t, os.Remove(filepath.Join(s.dir, "lvols", uuid1)))
	require.NoError(t, unix.Mkfifo(filepath.Join(s.dir, "lvols", uuid1), 0o600))
	c, err := New(HostOf("worker-1"), Options{Root: newKernel(t).root, AllowLoop: true, Log: testLog(t)})
	require.NoError(t, err)
	_, err = c.Find(t.Context(), e)
	require.ErrorContains(t, err, "is not a regular file")
	for _, unreadable := range []string{"hosts", "namespaces"} {
		path := filepath.Join(s.dir, "exports", nqn1, unreadable)
		require.NoError(t, os.RemoveAll(path))
		if unreadable == "hosts" {
			require.NoError(t, os.Mkdir(path, 0o700))
		} else {
			s.file("exports/"+nqn1+"/hosts", "*")
			s.file("exports/"+nqn1+"/namespaces", "")
		}
		_, err = c.Find(t.Context(), e)
		require.ErrorContains(t, err, map[string]string{"hosts": "read the allowed hosts", "namespaces": "list namespaces"}[unreadable])
		require.NoError(t, os.RemoveAll(path))
	}
}

// If a volume is attached to two loop devices, its data is cached twice, so the call fails instead
// of returning one of them.
func TestVolumeOnTwoLoopDevicesIsRefused(t *testing.T) {
	s := newSimulation(t)
	s.export(nqn1, uuid1, 8, "*")
	e := s.of(nqn1, uuid1)
	c := loopConnector(t, e)
	l := c.(*byTransport).transports[Loop].(*loop)
	for range 2 {
		file, err := l.open(e)
		require.NoError(t, err)
		require.NoError(t, l.attach(t.Context(), file))
		require.NoError(t, file.backing.Close())
	}
	attached, err := l.labelled(e)
	require.NoError(t, err)
	require.Len(t, attached, 2)
	_, err = c.Find(t.Context(), e)
	require.ErrorIs(t, err, ErrAmbiguous)
	for _, name := range attached {
		require.ErrorContains(t, err, name)
	}
	require.NoError(t, c.Disconnect(t.Context(), e))
	attached, err = l.labelled(e)
	require.NoError(t, err)
	assert.Empty(t, attached)
	require.ErrorContains(t, l.setCapacity("loop99999"), "read the size of loop99999 again")
	require.ErrorContains(t, l.detach("loop99999"), "detach loop99999")
}

// If a loop device disappears while devices are being listed, the other devices are still found.
func TestVanishingLoopDeviceIsIgnored(t *testing.T) {
	s := newSimulation(t)
	s.export(nqn1, uuid1, 8, "*")
	e := s.of(nqn1, uuid1)
	d, err := loopConnector(t, e).Connect(t.Context(), e)
	require.NoError(t, err)
	name := filepath.Base(d.Path)
	k := newKernel(t)
	k.dir("sys/block/loop/loop") // sorts first and has no device
	k.dir("sys/block/" + name + "/loop")
	for _, attribute := range []string{"dev", "size"} {
		text, err := os.ReadFile(filepath.Join("/sys/block", name, attribute))
		require.NoError(t, err)
		k.file(filepath.Join("sys/block", name, attribute), string(text))
	}
	k.link("dev/"+name, d.Path)
	connector, err := New(HostOf("worker-1"), Options{Root: k.root, AllowLoop: true, Log: testLog(t)})
	require.NoError(t, err)
	found, err := connector.Find(t.Context(), e)
	require.NoError(t, err)
	assert.Equal(t, name, filepath.Base(found.Path))
}
