package connect

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exportISCSI has no port. Each test sets the port of its own target.
var exportISCSI = Export{Transport: ISCSI, Address: "127.0.0.1", IQN: iqn1, NSUUID: uuid1}

// iscsiTarget starts a minimal iSCSI target that responds to the first step of a login with a
// status.
func iscsiTarget(t *testing.T, answer func(iqn, initiator string) uint16) (port string) {
	return serveTCP(t, func(c net.Conn) { serveLogin(t, c, answer) })
}

func serveLogin(t *testing.T, c io.ReadWriter, answer func(iqn, initiator string) uint16) {
	head := make([]byte, 48)
	if _, err := io.ReadFull(c, head); err != nil {
		return
	}
	assert.Equal(t, []byte{0x43, 0x81, 0, 0, 0}, head[:5], "login, immediate, versions, no additional header")
	text := make([]byte, (binary.BigEndian.Uint32(head[4:])+3)&^3)
	if _, err := io.ReadFull(c, text); err != nil {
		return
	}
	keys := map[string]string{}
	for _, pair := range strings.Split(string(text), "\x00") {
		key, value, _ := strings.Cut(pair, "=")
		keys[key] = value
	}
	assert.Equal(t, "Normal", keys["SessionType"])
	response := make([]byte, 48)
	response[0] = 0x23
	binary.BigEndian.PutUint16(response[36:], answer(keys["TargetName"], keys["InitiatorName"]))
	c.Write(response)
}

// iscsiKernel is a fake kernel with iSCSI sessions, and an iscsiadm that creates them.
type iscsiKernel struct {
	*kernel
	host   Host
	export Export
	ran    []string
	exit   map[string]int                            // maps part of a command line to an exit code
	status uint16                                    // login status
	answer func(line string) (exit int, failed bool) // called before exit is consulted; may be nil
}

func newISCSIKernel(t *testing.T) (*iscsiKernel, *byTransport) {
	k := &iscsiKernel{kernel: newKernel(t), host: HostOf("worker-1"), export: exportISCSI, exit: map[string]int{}}
	k.export.Port = iscsiTarget(t, func(iqn, initiator string) uint16 {
		assert.Equal(t, iqn1, iqn)
		assert.Equal(t, k.host.IQN, initiator)
		return k.status
	})
	k.dir("sys/class/iscsi_session")
	i := &iscsi{node: k.node, host: k.host, log: testLog(t), exec: fakeExec(func(line string) (string, int) {
		k.ran = append(k.ran, line)
		if k.answer != nil {
			if code, failed := k.answer(line); failed {
				return "iscsiadm: failed", code
			}
		}
		for part, code := range k.exit {
			if strings.Contains(line, part) {
				return "iscsiadm: failed", code
			}
		}
		switch {
		case strings.HasSuffix(line, "--login"):
			k.session(1, iqn1, k.host.IQN)
			k.lun(1, 0, "sda", uuid1[:31], gib)
		case strings.HasSuffix(line, "--logout"):
			k.remove("sys/class/iscsi_session/session1")
		}
		return "", 0
	})}
	return k, k.connector(map[Transport]transport{ISCSI: i})
}

func (k *iscsiKernel) session(n int, iqn, initiator string) {
	dir := fmt.Sprintf("sys/class/iscsi_session/session%d/", n)
	k.file(dir+"targetname", iqn+"\n")
	k.file(dir+"initiatorname", initiator+"\n")
	k.file(dir+"state", "LOGGED_IN\n")
	k.dir(fmt.Sprintf("sys/class/iscsi_host/host%d/device/session%d", n, n))
	k.file(fmt.Sprintf("sys/class/scsi_host/host%d/scan", n), "")
}

func (k *iscsiKernel) lun(session, number int, name, serial string, bytes int64) {
	dir := fmt.Sprintf("sys/class/iscsi_session/session%d/device/target%d:0:0/%d:0:0:%d", session, session, session, number)
	k.file(dir+"/vpd_pg80", "\x00\x80\x00\x20"+serial+"\x00")
	k.block(dir+"/block/"+name, uint32(session*16+number), bytes)
	k.file(dir+"/block/"+name+"/device/rescan", "")
}

func (k *iscsiKernel) commands() []string {
	defer func() { k.ran = nil }()
	return k.ran
}

func TestISCSIConnectAndDisconnect(t *testing.T) {
	k, c := newISCSIKernel(t)
	record := "iscsiadm -m node -T " + iqn1 + " -p 127.0.0.1:" + k.export.Port + " -I spdkgate "
	_, err := c.Find(t.Context(), k.export)
	require.ErrorIs(t, err, ErrNotConnected)
	_, err = c.Rescan(t.Context(), k.export, gib)
	require.ErrorIs(t, err, ErrNotConnected)
	assert.Empty(t, k.log())
	d, err := c.Connect(t.Context(), k.export)
	require.NoError(t, err)
	assert.Equal(t, Device{Path: k.root + "/dev/sda", SizeBytes: gib}, d)
	assert.Equal(t, []string{
		"iscsiadm -m iface -I spdkgate -o new",
		"iscsiadm -m iface -I spdkgate -o update -n iface.initiatorname -v " + k.host.IQN,
		record + "-o new",
		record + "-o update -n node.startup -v manual",
		record + "-o update -n node.session.initial_login_retry_max -v 2",
		record + "-o update -n node.conn[0].timeo.login_timeout -v 5",
		record + "--login",
	}, k.commands())
	again, err := c.Connect(t.Context(), k.export)
	require.NoError(t, err)
	assert.Equal(t, d, again)
	assert.Empty(t, k.commands())

	k.onWrite = func(path, _ string) error {
		assert.Equal(t, "sys/block/sda/device/rescan", path)
		k.lun(1, 0, "sda", uuid1[:31], 2*gib)
		return nil
	}
	k.log()
	for _, rescans := range []int{1, 0} { // no rescan if the device is large enough
		size, err := c.Rescan(t.Context(), k.export, 2*gib)
		require.NoError(t, err)
		assert.EqualValues(t, 2*gib, size)
		assert.Len(t, k.log(), rescans)
	}

	require.NoError(t, c.Disconnect(t.Context(), k.export))
	assert.Equal(t, []string{record + "--logout", record + "-o delete"}, k.commands())
	k.exit["-o delete"] = exitNoObjects
	require.NoError(t, c.Disconnect(t.Context(), k.export))
	assert.Equal(t, []string{record + "-o delete"}, k.commands(), "a record may be left")
}

func TestISCSIIdentityIsVerified(t *testing.T) {
	k, c := newISCSIKernel(t)
	find := func() (string, error) {
		d, err := c.Find(t.Context(), k.export)
		return filepath.Base(d.Path), err
	}
	k.session(1, iqn1, "iqn.1993-08.org.debian:01:abc")
	k.lun(1, 0, "sda", uuid1[:31], gib)
	_, err := find()
	require.ErrorIs(t, err, ErrNotConnected, "the session of another initiator")
	k.session(2, iqn1, k.host.IQN)
	_, err = find()
	require.ErrorIs(t, err, ErrNoNamespace)
	k.lun(2, 1, "sdb", uuid1[:31], gib)
	_, err = find()
	require.ErrorIs(t, err, ErrNoNamespace, "not LUN 0")
	k.lun(2, 0, "sdc", uuid2[:31], gib)
	_, err = find()
	require.ErrorIs(t, err, ErrNoNamespace, "LUN 0 is another volume")
	require.ErrorContains(t, err, uuid2[:31])
	for _, serial := range []string{uuid1[:31], strings.ToUpper(uuid1), "SPDK-SERIAL", ""} {
		k.lun(2, 0, "sdc", serial, gib)
		name, err := find()
		require.NoError(t, err, serial)
		assert.Equal(t, "sdc", name)
	}
	k.file("sys/class/iscsi_session/session2/state", "FAILED\n")
	_, err = find()
	require.ErrorIs(t, err, ErrUnreachable)
	k.session(3, iqn1, k.host.IQN)
	k.lun(3, 0, "sdd", uuid1[:31], gib)
	_, err = find()
	require.ErrorIs(t, err, ErrAmbiguous)
}

func TestISCSILoginRefusalsAreExplained(t *testing.T) {
	for status, tt := range map[uint16]struct {
		kind error
		says string
	}{
		0x0201: {ErrRefused, "published to this node"},
		0x0202: {ErrRefused, HostOf("worker-1").IQN},
		0x0203: {ErrNoSubsystem, "lost its configuration"},
		0x0301: {ErrNoSubsystem, iqn1},
		0x0302: {ErrRefused, "0x0302"},
	} {
		k, c := newISCSIKernel(t)
		k.status = status
		_, err := c.Connect(t.Context(), k.export)
		require.ErrorIs(t, err, tt.kind, "status %#x", status)
		require.ErrorContains(t, err, tt.says)
		assert.Empty(t, k.commands(), "iscsiadm is not run")
	}
	k, c := newISCSIKernel(t)
	k.export.Port = "1"
	_, err := c.Connect(t.Context(), k.export)
	require.ErrorIs(t, err, ErrUnreachable)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	k.export.Port = strconv.Itoa(silent.Addr().(*net.TCPAddr).Port)
	_, err = c.Connect(soon(t, 2*time.Second), k.export)
	require.ErrorIs(t, err, ErrUnreachable, "accepts connections, but does not respond")
}

func TestISCSILoginFailuresAreDistinguished(t *testing.T) {
	for code, tt := range map[int]struct {
		kind error
		says string
	}{
		exitTransportTimeout:   {ErrUnreachable, "journalctl -u iscsid"},
		exitFatalLogin:         {ErrUnreachable, "could not log in"},
		exitAuthFailed:         {ErrRefused, "published to this node"},
		exitDaemonNotConnected: {ErrUnsupported, "iscsid"},
		exitNoTransport:        {ErrUnsupported, "iscsi_tcp"},
		1:                      {nil, "exit code 1: iscsiadm: failed"},
	} {
		k, c := newISCSIKernel(t)
		k.exit["--login"] = code
		k.exit["--logout"] = exitNoObjects
		_, err := c.Connect(t.Context(), k.export)
		require.Error(t, err)
		if tt.kind != nil {
			require.ErrorIs(t, err, tt.kind, "exit code %d", code)
		}
		require.ErrorContains(t, err, tt.says)
		ran := strings.Join(k.commands(), "\n")
		assert.Regexp(t, `(?s)--login.*--logout.*-o delete$`, ran, "neither login attempts nor a record are left")
	}
	k, c := newISCSIKernel(t)
	k.exit["-o new"] = exitExists
	_, err := c.Connect(t.Context(), k.export)
	require.NoError(t, err, "it is not a failure that records exist")
}

func TestISCSIExitCodesMapToErrors(t *testing.T) {
	for code, kind := range map[int]error{
		4: ErrUnreachable, 5: ErrUnreachable, 8: ErrUnreachable, 11: ErrUnreachable, 19: ErrUnreachable, 23: ErrUnreachable,
		24: ErrRefused, 12: ErrUnsupported, 18: ErrUnsupported, 20: ErrUnsupported, 127: ErrUnsupported,
	} {
		k, c := newISCSIKernel(t)
		k.exit["--login"] = code
		_, err := c.Connect(t.Context(), k.export)
		require.ErrorIs(t, err, kind, "exit code %d", code)
	}
	for part, fine := range map[string][]int{"-o new": {15}, "-o update": {15}, "--login": {15}, "--logout": {2, 21}, "-o delete": {21}} {
		for _, code := range []int{2, 15, 21} {
			k, c := newISCSIKernel(t)
			k.exit[part] = code
			err := c.transports[ISCSI].(*iscsi).iscsiadm(t.Context(), []string{part}, map[string][]int{
				"-o new": {exitExists}, "-o update": {exitExists}, "--login": {exitExists}, "--logout": {exitNoObjects, exitNoSession}, "-o delete": {exitNoObjects},
			}[part]...)
			assert.Equal(t, slices.Contains(fine, code), err == nil, "%s ends with %d", part, code)
		}
	}
}

func TestISCSILoginTimesOutAndIsUndone(t *testing.T) {
	k, c := newISCSIKernel(t)
	k.exit["--logout"] = exitNoObjects
	i := c.transports[ISCSI].(*iscsi)
	i.exec = fakeExec(func(line string) (string, int) {
		switch {
		case strings.HasSuffix(line, "--login"):
			k.session(1, iqn1, k.host.IQN)
		case strings.HasSuffix(line, "--logout"):
			k.remove("sys/class/iscsi_session/session1")
		}
		return "", 0
	})
	_, err := c.Connect(soon(t, 2*time.Second), k.export)
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, ErrNoNamespace)
	require.NoDirExists(t, filepath.Join(k.root, "sys/class/iscsi_session/session1"))

	k.onWrite = func(path, text string) error { // the LUN does not appear until a scan
		assert.Equal(t, "sys/class/scsi_host/host1/scan", path)
		assert.Equal(t, "- - -", text)
		k.lun(1, 0, "sda", uuid1[:31], gib)
		return nil
	}
	_, err = c.Connect(t.Context(), k.export)
	require.NoError(t, err)
}

func TestISCSIDisconnectKeepsSharedSession(t *testing.T) {
	k, c := newISCSIKernel(t)
	k.session(1, iqn1, k.host.IQN)
	k.lun(1, 0, "sda", uuid1[:31], gib)
	k.lun(1, 1, "sdb", uuid2[:31], gib)
	k.held["sda"] = true
	require.ErrorIs(t, c.Disconnect(t.Context(), k.export), ErrBusy)
	k.held = map[string]bool{"sdb": true}
	require.NoError(t, c.Disconnect(t.Context(), k.export))
	assert.Empty(t, k.commands())
	k.held = nil
	require.NoError(t, c.Disconnect(t.Context(), k.export))
	assert.NotEmpty(t, k.commands())
}

// If a target's LUNs cannot be listed, Disconnect keeps the session, because one of the LUNs may be
// in use.
func TestISCSIDisconnectFailsIfLUNsAreUnknown(t *testing.T) {
	k, c := newISCSIKernel(t)
	k.session(1, iqn1, k.host.IQN)
	k.file("sys/class/iscsi_session/session1/device/target1:0:0", "not a directory")
	require.ErrorContains(t, c.Disconnect(t.Context(), k.export), "list LUNs of session1")
	assert.Empty(t, k.commands())
}

// A login request is padded to a multiple of four bytes, with no more padding than needed.
func TestISCSILoginIsPadded(t *testing.T) {
	for n := range 4 {
		pdu := loginRequest(Export{IQN: iqn1 + strings.Repeat("x", n)}, HostOf("worker-1"))
		text := int(binary.BigEndian.Uint32(pdu[4:]))
		assert.Zero(t, len(pdu)%4)
		assert.Less(t, len(pdu)-iscsiHeaderSize-text, 4, "text of %d bytes", text)
		assert.GreaterOrEqual(t, len(pdu)-iscsiHeaderSize, text)
	}
}

func TestMissingISCSIToolsAreReported(t *testing.T) {
	if _, err := os.Stat("/usr/sbin/iscsiadm"); err == nil {
		t.Setenv("PATH", "/nonexistent")
	}
	k, e := newKernel(t), exportISCSI
	e.Port = iscsiTarget(t, func(string, string) uint16 { return 0 })
	c, err := New(HostOf("worker-1"), Options{Root: k.root, Log: testLog(t)})
	require.NoError(t, err)
	_, err = c.Connect(t.Context(), e)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "install open-iscsi")
	require.NoError(t, c.Disconnect(t.Context(), e), "nothing is connected")
}
