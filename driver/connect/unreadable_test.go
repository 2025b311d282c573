package connect

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// blocked replaces a sysfs directory with a file, so that attempts to list the directory fail.
func (k *kernel) blocked(path string) {
	k.remove(path)
	k.file(path, "")
}

// If part of sysfs cannot be read, calls fail instead of reporting success, and no volume is
// detached.
func TestUnreadableNVMeSysfsFailsCalls(t *testing.T) {
	every := []string{"find", "connect", "rescan", "disconnect", "paths", "reconnect"}
	for name, c := range map[string]struct {
		spoil func(k *nvmeKernel)
		fail  []string // the operations that must fail
		says  string
	}{
		"controllers":     {func(k *nvmeKernel) { k.blocked("sys/class/nvme") }, every, "list NVMe controllers"},
		"subsystems":      {func(k *nvmeKernel) { k.blocked("sys/class/nvme-subsystem") }, every, "list NVMe subsystems"},
		"one subsystem":   {func(k *nvmeKernel) { k.file("sys/class/nvme-subsystem/nvme-subsys9", "") }, every, "list namespaces of nvme-subsys9"},
		"size":            {func(k *nvmeKernel) { k.file("sys/block/nvme0n1/size", "much") }, []string{"find", "connect", "rescan", "paths", "reconnect"}, `sysfs has "much"`},
		"negative size":   {func(k *nvmeKernel) { k.file("sys/block/nvme0n1/size", "-1") }, []string{"find", "connect", "rescan", "paths", "reconnect"}, `sysfs has "-1"`},
		"no device node":  {func(k *nvmeKernel) { delete(k.rdevs, "nvme0n1") }, []string{"find", "connect", "rescan", "paths", "reconnect"}, "whether the host's /dev is mounted"},
		"other's node":    {func(k *nvmeKernel) { k.rdevs["nvme0n1"]++ }, []string{"find", "connect", "rescan", "reconnect"}, "the kernel gave nvme0n1 the number 259:1"},
		"mounts":          {func(k *nvmeKernel) { k.remove("proc/self/mountinfo") }, []string{"disconnect"}, "list mounts"},
		"mounts' syntax":  {func(k *nvmeKernel) { k.file("proc/self/mountinfo", "x\n") }, []string{"disconnect"}, "list mounts"},
		"use of a device": {func(k *nvmeKernel) { k.node.claim = func(string) error { return unix.EIO } }, []string{"disconnect"}, "check whether nvme0n1 is in use"},
		"rescan": {func(k *nvmeKernel) {
			k.onWrite = func(path, _ string) error {
				return map[bool]error{true: unix.EIO}[strings.HasSuffix(path, "rescan_controller")]
			}
		}, []string{"rescan"}, "rescan controller nvme0: input/output error"},
		"deletion": {func(k *nvmeKernel) { k.onWrite = func(string, string) error { return unix.EIO } }, []string{"disconnect"}, "remove controller nvme0: input/output error"},
		"deletion that does nothing": {func(k *nvmeKernel) { k.onWrite = func(string, string) error { return unix.ENODEV } },
			[]string{"disconnect"}, "nvme0 live at 127.0.0.1:4420"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, connector := newNVMeKernel(t, true)
			k.file("sys/module/nvme_core/parameters/multipath", "Y\n")
			k.controller(0, 0, nqn1, k.host.NQN, "live", "127.0.0.1")
			k.namespace(0, 0, 1, "uuid."+uuid1, gib)
			c.spoil(k)
			for _, o := range operations(t, connector, export1, 2*gib) {
				if slices.Contains(c.fail, o.name) {
					require.ErrorContains(t, o.do(), c.says, o.name)
				}
			}
			if !strings.HasPrefix(name, "deletion") {
				assert.NotContains(t, k.log(), "sys/class/nvme/nvme0/delete_controller=1")
			}
		})
	}
}

// A connectorCall is a call of a connector.
type connectorCall struct {
	name string
	do   func() error
}

// operations returns all of a connector's operations. Some operations end only at their deadline,
// which is long enough for a busy machine to report the reason.
func operations(t *testing.T, c Watcher, e Export, bytes int64) []connectorCall {
	return []connectorCall{
		{"paths", func() error { _, err := c.Paths(t.Context(), e); return err }},
		{"reconnect", func() error { return c.Reconnect(soon(t, 2*time.Second), e) }},
		{"find", func() error { _, err := c.Find(t.Context(), e); return err }},
		{"connect", func() error { _, err := c.Connect(soon(t, 2*time.Second), e); return err }},
		{"rescan", func() error { _, err := c.Rescan(soon(t, 2*time.Second), e, bytes); return err }},
		{"disconnect", func() error { return c.Disconnect(soon(t, 2*time.Second), e) }},
	}
}

func TestUnreadableISCSISysfsFailsCalls(t *testing.T) {
	every := []string{"find", "connect", "rescan", "disconnect", "paths"}
	const session = "sys/class/iscsi_session/session1"
	for name, c := range map[string]struct {
		spoil func(k *iscsiKernel)
		fail  []string
		says  string
	}{
		"sessions":        {func(k *iscsiKernel) { k.blocked("sys/class/iscsi_session") }, append([]string{"reconnect"}, every...), "list iSCSI sessions"},
		"targets":         {func(k *iscsiKernel) { k.blocked(session + "/device") }, every, "list SCSI targets of session1"},
		"LUNs":            {func(k *iscsiKernel) { k.blocked(session + "/device/target1:0:0") }, every, "list LUNs of session1"},
		"block device":    {func(k *iscsiKernel) { k.blocked(session + "/device/target1:0:0/1:0:0:0/block") }, every, "find the block device of LUN 1:0:0:0"},
		"no LUN any more": {func(k *iscsiKernel) { k.lun(1, 0, "sda", uuid1[:31], 0) }, []string{"find", "connect", "rescan"}, "the target has removed the LUN"},
		"mounts":          {func(k *iscsiKernel) { k.remove("proc/self/mountinfo") }, []string{"disconnect"}, "list mounts"},
		"rescan":          {func(k *iscsiKernel) { k.onWrite = func(string, string) error { return unix.EIO } }, []string{"rescan"}, "rescan sda: input/output error"},
		"too small":       {func(*iscsiKernel) {}, []string{"rescan"}, "sda has 1073741824 bytes, but 2147483648 are requested"},
		"logout":          {func(k *iscsiKernel) { k.exit["--logout"] = exitDaemonComm }, []string{"disconnect"}, "exit code 18"},
		"logout that does nothing": {func(k *iscsiKernel) {
			k.exit["--logout"] = exitNoSession
		}, []string{"disconnect"}, "check whether iscsid is running on the node"},
		"record": {func(k *iscsiKernel) { k.exit["-o delete"] = exitDaemonComm }, []string{"disconnect"}, "exit code 18"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, connector := newISCSIKernel(t)
			k.session(1, iqn1, k.host.IQN)
			k.lun(1, 0, "sda", uuid1[:31], gib)
			// sysfs also contains entries other than targets and LUNs.
			for _, more := range []string{"power", "uevent", "zfcp", "0", "target", "block"} {
				k.dir(session + "/device/" + more)
				k.dir(session + "/device/target1:0:0/" + more)
			}
			_, err := connector.Find(t.Context(), k.export)
			require.NoError(t, err)
			c.spoil(k)
			for _, o := range operations(t, connector, k.export, 2*gib) {
				if slices.Contains(c.fail, o.name) {
					require.ErrorContains(t, o.do(), c.says, o.name)
				}
			}
			if name != "record" && !strings.HasPrefix(name, "logout") {
				assert.Empty(t, k.commands(), "nothing is detached")
			}
		})
	}
}

// Only the SCSI hosts that have a session with the target are scanned for a missing LUN.
func TestOnlyHostsOfTheTargetAreScanned(t *testing.T) {
	k, c := newISCSIKernel(t)
	k.session(1, iqn1, k.host.IQN)
	k.session(2, "iqn.2016-06.io.spdk:other", k.host.IQN)
	i := c.transports[ISCSI].(*iscsi)
	require.NoError(t, i.scanHosts(k.export))
	assert.Equal(t, []string{"sys/class/scsi_host/host1/scan=- - -"}, k.log())
	k.onWrite = func(string, string) error { return unix.EIO }
	require.ErrorContains(t, i.scanHosts(k.export), "scan host1 for LUNs")
	k.blocked("sys/class/iscsi_host")
	require.ErrorContains(t, i.scanHosts(k.export), "list iSCSI hosts")
	k.blocked("sys/class/iscsi_session")
	require.ErrorContains(t, i.scanHosts(k.export), "list iSCSI sessions")
}

// For volumes created by SPDK's spdk-csi, only the lvol's UUID is known. A LUN with the serial
// number of another lvol is rejected.
func TestISCSIVerifiesLegacyVolumes(t *testing.T) {
	k, c := newISCSIKernel(t)
	k.session(1, iqn1, k.host.IQN)
	k.export.NSUUID, k.export.LegacyUUID = "", uuid1
	k.lun(1, 0, "sda", uuid1[:31], gib)
	_, err := c.Find(t.Context(), k.export)
	require.NoError(t, err)
	k.lun(1, 0, "sda", uuid2[:31], gib)
	_, err = c.Find(t.Context(), k.export)
	require.ErrorIs(t, err, ErrNoNamespace)
	k.export.LegacyUUID = ""
	_, err = c.Find(t.Context(), k.export)
	require.NoError(t, err, "no UUID is known")
	k.file("sys/class/iscsi_session/session1/device/target1:0:0/1:0:0:0/vpd_pg80", "\x00\x80")
	k.export.LegacyUUID = uuid1
	_, err = c.Find(t.Context(), k.export)
	require.NoError(t, err, "the LUN has no serial number")
}

// If Connect fails and cannot undo its own steps, its error contains both failures.
func TestFailedISCSIUndoIsReported(t *testing.T) {
	k, c := newISCSIKernel(t)
	i := c.transports[ISCSI].(*iscsi)
	i.exec = fakeExec(func(line string) (string, int) {
		switch {
		case strings.HasSuffix(line, "--login"):
			k.session(1, iqn1, k.host.IQN)
		case strings.HasSuffix(line, "--logout"):
			return "iscsiadm: failed", exitDaemonComm
		}
		return "", 0
	})
	_, err := c.Connect(soon(t, 2*time.Second), k.export)
	require.ErrorIs(t, err, ErrNoNamespace)
	require.ErrorContains(t, err, "undo the session")
	i.exec = fakeExec(func(string) (string, int) { return "iscsiadm: no such record", exitLogin })
	k.remove("sys/class/iscsi_session/session1")
	_, err = c.Connect(t.Context(), k.export)
	require.ErrorContains(t, err, "exit code 5", "the login fails if a record cannot be created")
}

// This test calls the functions that access the kernel on files that behave like the kernel's.
func TestNodeFilesAreReadAndWritten(t *testing.T) {
	dir := t.TempDir()
	attribute, fifo := filepath.Join(dir, "attribute"), filepath.Join(dir, "fabrics")
	require.ErrorIs(t, writeAttribute(attribute, "1"), fs.ErrNotExist)
	require.NoFileExists(t, attribute)
	require.NoError(t, os.WriteFile(attribute, nil, 0o600))
	require.NoError(t, writeAttribute(attribute, "1"))
	text, err := os.ReadFile(attribute)
	require.NoError(t, err)
	assert.Equal(t, "1", string(text))
	require.ErrorIs(t, writeAttribute("/dev/full", "1"), unix.ENOSPC)

	_, err = exchange(fifo, "x")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	answer, err := exchange(fifo, "instance=0,cntlid=1\n")
	require.NoError(t, err)
	assert.Equal(t, "instance=0,cntlid=1", answer)
	_, err = exchange("/dev/full", "x")
	require.ErrorIs(t, err, unix.ENOSPC)
	_, err = exchange("/dev/null", "x")
	require.ErrorIs(t, err, io.EOF)

	_, err = blockRdev(attribute)
	require.ErrorIs(t, err, syscall.ENOTBLK)
	_, err = blockRdev(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, claim(attribute))
	require.ErrorIs(t, claim(filepath.Join(dir, "missing")), fs.ErrNotExist)
}

// A device without a usable device node is not in use. A mount of the device node is a raw block
// volume; a mount of a directory with the same name in a file system is not.
func TestUsedDevicesAreDetected(t *testing.T) {
	k := newKernel(t)
	for _, err := range []error{fs.ErrNotExist, unix.ENXIO, unix.ENODEV} {
		k.node.claim = func(string) error { return err }
		require.NoError(t, k.node.inUse("sda"))
	}
	k.node.claim = func(string) error { return unix.EBUSY }
	require.ErrorIs(t, k.node.inUse("sda"), ErrBusy)
	k.node.claim = func(string) error { return nil }
	for line, busy := range map[string]bool{
		"30 20 0:5 /sda /pods/1/dev rw - devtmpfs udev rw":  true,
		"30 20 0:5 /sda /pods/1/dev rw - tmpfs tmpfs rw":    true, // the /dev of some containers
		"30 20 0:5 /sda /pods/1/dev rw - ext4 /dev/sdb rw":  false,
		"30 20 0:5 /sdb /pods/1/dev rw - devtmpfs udev rw":  false,
		"30 20 0:5 / /dev rw - devtmpfs udev rw":            false,
		"30 20 0:5 /sda1 /pods/1/dev rw - devtmpfs udev rw": false,
	} {
		k.file("proc/self/mountinfo", line+"\n")
		assert.Equal(t, busy, errors.Is(k.node.inUse("sda"), ErrBusy), line)
	}
}

func TestAddressesAreResolved(t *testing.T) {
	for _, address := range []string{"192.0.2.1", "fd00::1", "fe80::1%eth0"} {
		got, err := resolve(t.Context(), address)
		require.NoError(t, err)
		assert.Equal(t, address, got)
	}
	got, err := resolve(t.Context(), "localhost")
	require.NoError(t, err)
	assert.True(t, net.ParseIP(got).IsLoopback(), got)
	_, err = resolve(t.Context(), "no host name")
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, KeyTargetAddr)
}

// A target that closes the connection instead of responding to the probe is unreachable.
func TestProbeReportsAClosedConnectionAsUnreachable(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.exchange = func(string) error { return syscall.EIO }
	e := export1
	e.Port = serveTCP(t, func(c net.Conn) {
		request := make([]byte, icSize)
		if _, err := io.ReadFull(c, request); err == nil {
			request[0] = pduICResp
			c.Write(request)
			io.ReadFull(c, make([]byte, commandSize+connectDataSize))
		}
	})
	_, err := c.Connect(t.Context(), e)
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, "own attempt failed too")
	k.exchange = func(string) error { return errors.New("not an errno") }
	_, err = c.Connect(t.Context(), e)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "write to /dev/nvme-fabrics: not an errno")
}

func TestErrorsDescribeTheExport(t *testing.T) {
	c, err := New(HostOf("worker-1"), Options{Root: t.TempDir(), Log: testLog(t)})
	require.NoError(t, err)
	for want, e := range map[string]Export{
		"tcp nqn.x at [fd00::1]:4420": {Transport: TCP, Address: "fd00::1", Port: "4420", NQN: "nqn.x"},
		"iscsi iqn.x at 10.0.0.1:1":   {Transport: ISCSI, Address: "10.0.0.1", Port: "1", IQN: "iqn.x"},
		"loop nqn.x":                  {Transport: Loop, NQN: "nqn.x"},
	} {
		_, err := c.Find(t.Context(), e)
		require.ErrorContains(t, err, "find "+want+": ")
	}
	for _, o := range operations(t, c, Export{Transport: "fc"}, 1) {
		require.ErrorIs(t, o.do(), ErrInvalidExport, o.name)
	}
}

// If a caller cancels its context with a cause, the error of the canceled call contains that cause.
func TestCauseOfCancellationIsReported(t *testing.T) {
	k, c := newNVMeKernel(t, true)
	k.controller(0, 0, nqn1, k.host.NQN, "connecting", "127.0.0.1")
	why := errors.New("the node shuts down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := c.Connect(ctx, export1)
	require.ErrorIs(t, err, why)
	require.NotErrorIs(t, err, ErrTimeout)
}
