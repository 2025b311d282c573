package connect

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// The first PDU of NVMe/TCP has 128 bytes. All bytes except its type and sizes are zero.
func TestICReqIsEncoded(t *testing.T) {
	want := append([]byte{0, 0, 128, 0, 128, 0, 0, 0}, make([]byte, 120)...)
	assert.Equal(t, want, initializeRequest())
}

// The Connect command is encoded as defined in the NVMe over Fabrics specification.
func TestConnectCommandIsEncoded(t *testing.T) {
	h := HostOf("worker-1")
	pdu, err := connectCommand(nqn1, h)
	require.NoError(t, err)
	require.Len(t, pdu, 72+1024)
	header := "04004848" + "48040000" // type, header of 72 bytes, data at 72, 1096 bytes
	command := "7f400000" + "01" + strings.Repeat("00", 27) + "00040000" + "000000" + "01" + "0000" + "0000" + "1f00" + strings.Repeat("00", 18)
	assert.Equal(t, header+command, hex.EncodeToString(pdu[:72]))
	id := uuid.MustParse(h.UUID)
	data := slicesOf(1024, map[int][]byte{0: id[:], 16: {0xff, 0xff}, 256: []byte(nqn1), 512: []byte(h.NQN)})
	assert.Equal(t, data, pdu[72:])
	long := strings.Repeat("x", 300)
	pdu, err = connectCommand(long, Host{UUID: h.UUID, NQN: long})
	require.NoError(t, err)
	assert.Equal(t, slicesOf(1024, map[int][]byte{0: id[:], 16: {0xff, 0xff}, 256: []byte(long[:255]), 512: []byte(long[:255])}), pdu[72:], "names end with a zero")
	pdu, err = connectCommand(nqn1, Host{UUID: "x"})
	require.ErrorContains(t, err, "host identifier")
	assert.Nil(t, pdu)
}

// slicesOf returns size zeros with the given parts at their offsets.
func slicesOf(size int, parts map[int][]byte) []byte {
	all := make([]byte, size)
	for at, part := range parts {
		copy(all[at:], part)
	}
	return all
}

// The first PDU of an iSCSI login has the keys in its data segment, which is padded to four bytes.
func TestISCSILoginIsEncoded(t *testing.T) {
	for padding, iqn := range []string{"iqn.x:1234", "iqn.x:123", "iqn.x:12", "iqn.x:1"} {
		text := "InitiatorName=" + HostOf("worker-1").IQN + "\x00TargetName=" + iqn + "\x00SessionType=Normal\x00AuthMethod=CHAP,None\x00"
		pdu := loginRequest(Export{IQN: iqn}, HostOf("worker-1"))
		want := slicesOf(48, map[int][]byte{0: {0x43, 0x81}, 8: {0x80}})
		binary.BigEndian.PutUint32(want[4:], uint32(len(text)))
		copy(want[9:14], pdu[9:14]) // random
		assert.NotEqual(t, make([]byte, 5), pdu[9:14])
		require.Zero(t, len(pdu)%4)
		assert.Equal(t, want, pdu[:48])
		assert.Equal(t, text, strings.TrimRight(string(pdu[48:]), "\x00")+"\x00")
		assert.Less(t, len(pdu)-48-len(text), 4, padding)
	}
}

// A response is accepted only if it is complete and has the expected type and size.
func TestInvalidPDUsAreRejected(t *testing.T) {
	pdu := []byte{1, 0, 0, 0, 12, 0, 0, 0, 9, 9, 9, 9}
	got, err := readPDU(bytes.NewReader(pdu), 1, 12)
	require.NoError(t, err)
	assert.Equal(t, pdu, got)
	for name, c := range map[string]struct {
		kind byte
		size int
	}{"type": {2, 12}, "size": {1, 11}, "incomplete": {1, 13}} {
		got, err = readPDU(bytes.NewReader(pdu), c.kind, c.size)
		require.Error(t, err, name)
		assert.Nil(t, got, name)
	}
}

// If an address has several records, records without an interface of this driver are skipped. A
// record that cannot be replaced is not changed, and its temporary file is removed.
func TestRecordsOfTheInterfaceAreChanged(t *testing.T) {
	k, c := newISCSIKernel(t)
	i := c.transports[ISCSI].(*iscsi)
	e := Export{Address: "192.0.2.1", Port: "3260", IQN: iqn1}
	folder := "var/lib/iscsi/nodes/" + iqn1
	k.dir(folder + "/192.0.2.1,3260,1/default")
	k.file(folder+"/192.0.2.1,3260,2/"+iface, "x\n")
	k.file(folder+"/192.0.2.1,3260", "y\n")
	k.file(folder+"/192.0.2.1,32600", "z\n")
	k.node.list = func(string) ([]string, error) {
		return []string{"192.0.2.1,32600", "192.0.2.1,3260,1", "192.0.2.1,3260,2", "192.0.2.1,3260"}, nil
	}
	found, err := i.records(folder, e)
	require.NoError(t, err)
	assert.Equal(t, []string{folder + "/192.0.2.1,3260,2/" + iface, folder + "/192.0.2.1,3260"}, found)
	k.node.list = list

	record := folder + "/192.0.2.1,3260"
	require.ErrorIs(t, i.changeRecord("etc/iscsi", record, nil), os.ErrNotExist, "there is no such folder")
	require.ErrorIs(t, i.changeRecord("var/lib/iscsi", folder+"/missing", nil), os.ErrNotExist)
	e.Authentication = hostauth.CHAP
	require.ErrorIs(t, i.writeKeys(e), ErrNoKeys)
	text, err := os.ReadFile(filepath.Join(k.root, record))
	require.NoError(t, err)
	assert.Equal(t, "y\n", string(text))
	require.NoError(t, i.changeRecord("var/lib/iscsi", record, []string{"a = b"}))
	text, err = os.ReadFile(filepath.Join(k.root, record))
	require.NoError(t, err)
	assert.Equal(t, "y\na = b\n# END RECORD\n", string(text))
	left, err := filepath.Glob(filepath.Join(k.root, "var/lib/iscsi/.spdkgate-*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// The exit codes are defined by iscsiadm(8), except the code of a shell that cannot find a program.
func TestISCSIAdmExitCodesNeverChange(t *testing.T) {
	assert.Equal(t, map[string]int{
		"ISCSI_ERR_SESS_NOT_FOUND": 2, "ISCSI_ERR_TRANS": 4, "ISCSI_ERR_LOGIN": 5, "ISCSI_ERR_TRANS_TIMEOUT": 8, "ISCSI_ERR_PDU_TIMEOUT": 11, "ISCSI_ERR_TRANS_NOT_FOUND": 12,
		"ISCSI_ERR_SESS_EXISTS": 15, "ISCSI_ERR_ISCSID_COMM_ERR": 18, "ISCSI_ERR_FATAL_LOGIN": 19, "ISCSI_ERR_ISCSID_NOTCONN": 20, "ISCSI_ERR_NO_OBJS_FOUND": 21,
		"ISCSI_ERR_HOST_NOT_FOUND": 23, "ISCSI_ERR_LOGIN_AUTH_FAILED": 24, "not found by the shell": 127,
	}, map[string]int{
		"ISCSI_ERR_SESS_NOT_FOUND": exitNoSession, "ISCSI_ERR_TRANS": exitTransport, "ISCSI_ERR_LOGIN": exitLogin, "ISCSI_ERR_TRANS_TIMEOUT": exitTransportTimeout,
		"ISCSI_ERR_PDU_TIMEOUT": exitPDUTimeout, "ISCSI_ERR_TRANS_NOT_FOUND": exitNoTransport, "ISCSI_ERR_SESS_EXISTS": exitExists, "ISCSI_ERR_ISCSID_COMM_ERR": exitDaemonComm,
		"ISCSI_ERR_FATAL_LOGIN": exitFatalLogin, "ISCSI_ERR_ISCSID_NOTCONN": exitDaemonNotConnected, "ISCSI_ERR_NO_OBJS_FOUND": exitNoObjects,
		"ISCSI_ERR_HOST_NOT_FOUND": exitHostNotFound, "ISCSI_ERR_LOGIN_AUTH_FAILED": exitAuthFailed, "not found by the shell": exitNotInstalled,
	})
}

// Unset options have the documented defaults; all other options keep their values.
func TestNVMeOptionsHaveDefaults(t *testing.T) {
	assert.Equal(t, NVMeOptions{CtrlLossTimeout: 10 * time.Minute, ReconnectDelay: 2 * time.Second, KeepAlive: 5 * time.Second}, NVMeOptions{}.withDefaults())
	given := NVMeOptions{CtrlLossTimeout: -1, ReconnectDelay: time.Second, KeepAlive: time.Minute, FastIOFail: time.Hour, IOQueues: 3, QueueSize: 17}
	assert.Equal(t, given, given.withDefaults())
}

// An operation ends shortly before its caller's deadline, so that its error reaches the caller. An
// operation that exceeds its deadline reports a timeout. A canceled operation reports the cause of
// the cancellation.
func TestEarlierDeadlineLeavesTimeForTheError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	without, stop := earlier(ctx)
	defer stop()
	_, ok := without.Deadline()
	assert.False(t, ok)
	for left, reserved := range map[time.Duration]time.Duration{time.Hour: time.Second, 80 * time.Minute: time.Second} {
		deadline := time.Now().Add(left)
		limited, cancel := context.WithDeadline(t.Context(), deadline)
		defer cancel()
		sooner, stop := earlier(limited)
		defer stop()
		at, ok := sooner.Deadline()
		require.True(t, ok)
		assert.Equal(t, reserved, deadline.Sub(at))
	}
	deadline := time.Now().Add(-time.Hour)
	past, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	require.ErrorIs(t, timeout(past), ErrTimeout)
	why := errors.New("the node shuts down")
	ended, end := context.WithCancelCause(t.Context())
	end(why)
	require.Equal(t, why, timeout(ended))
}
