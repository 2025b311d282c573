package connect

import (
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
	"net"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nvmeTarget starts a minimal NVMe/TCP target that responds to each connect with a status.
func nvmeTarget(t *testing.T, answer func(nqn, hostNQN string) uint16) (port string) {
	return serveTCP(t, func(c net.Conn) { serveConnect(t, c, 0, answer) })
}

// nvmeTargetThatAuthenticates starts a target that accepts every host but requires authentication.
func nvmeTargetThatAuthenticates(t *testing.T) (port string) {
	const transactionRequired = 1 << 1
	return serveTCP(t, func(c net.Conn) {
		serveConnect(t, c, transactionRequired, func(string, string) uint16 { return 0 })
	})
}

func serveConnect(t *testing.T, c io.ReadWriter, authentication uint16, answer func(nqn, hostNQN string) uint16) {
	request := make([]byte, 128)
	if _, err := io.ReadFull(c, request); err != nil {
		return
	}
	assert.Equal(t, append([]byte{0, 0, 128, 0, 128, 0, 0, 0}, make([]byte, 120)...), request, "ICReq")
	request[0] = 1
	c.Write(request)
	capsule := make([]byte, 72+1024)
	if _, err := io.ReadFull(c, capsule); err != nil {
		return
	}
	assert.Equal(t, []byte{4, 0, 72, 72}, capsule[:4])
	assert.EqualValues(t, 72+1024, binary.LittleEndian.Uint32(capsule[4:]))
	assert.Equal(t, []byte{0x7f, 0x40}, capsule[8:10])
	assert.EqualValues(t, 1, capsule[8+4], "fabrics command type: connect")
	assert.Zero(t, binary.LittleEndian.Uint16(capsule[8+42:]), "admin queue")
	data := capsule[72:]
	assert.Equal(t, uuid.MustParse(HostOf("worker-1").UUID), uuid.UUID(data[:16]))
	assert.EqualValues(t, 0xffff, binary.LittleEndian.Uint16(data[16:]))
	text := func(b []byte) string { return string(b[:bytes.IndexByte(b, 0)]) }
	status := answer(text(data[256:512]), text(data[512:768]))
	response := append([]byte{5, 0, 24, 0, 24, 0, 0, 0}, make([]byte, 16)...)
	binary.LittleEndian.PutUint16(response[8+2:], authentication)
	binary.LittleEndian.PutUint16(response[8+14:], 1<<15|status<<1|1) // do not retry, status, phase
	c.Write(response)
}

func TestNVMeConnectFailuresAreExplained(t *testing.T) {
	host := HostOf("worker-1")
	port := nvmeTarget(t, func(nqn, hostNQN string) uint16 {
		assert.Equal(t, host.NQN, hostNQN)
		switch nqn {
		case "nqn.2026-11.io.x:missing":
			return 0x182
		case "nqn.2026-11.io.x:refused":
			return 0x184
		case "nqn.2026-11.io.x:keys":
			return 0x191
		case "nqn.2026-11.io.x:busy":
			return 0x181
		}
		return 0
	})
	for _, tt := range []struct {
		name   string
		export Export
		kernel error
		kind   error
		says   string
	}{
		{"no subsystem", Export{Transport: TCP, NQN: "nqn.2026-11.io.x:missing"}, syscall.EIO, ErrNoSubsystem, "lost its configuration"},
		{"host not allowed", Export{Transport: TCP, NQN: "nqn.2026-11.io.x:refused"}, syscall.EIO, ErrRefused, host.NQN},
		{"host not allowed, another errno", Export{Transport: TCP, NQN: "nqn.2026-11.io.x:refused"}, syscall.EINVAL, ErrRefused, "published to this node"},
		{"keys", Export{Transport: TCP, NQN: "nqn.2026-11.io.x:keys"}, syscall.EIO, ErrRefused, "in-band authentication"},
		{"another status", Export{Transport: TCP, NQN: "nqn.2026-11.io.x:busy"}, syscall.EIO, ErrRefused, "0x181"},
		{"kernel error", Export{Transport: TCP, NQN: nqn1}, syscall.EINVAL, ErrUnsupported, "nvme-tcp"},
		{"refused by RDMA", Export{Transport: RDMA, NQN: nqn1}, syscall.EIO, ErrRefused, "kernel log"},
		{"no listener", Export{Transport: TCP, NQN: nqn1}, syscall.ECONNREFUSED, ErrUnreachable, "whether the target is running"},
		{"no permission", Export{Transport: TCP, NQN: nqn1}, &fs.PathError{Op: "open", Err: syscall.EACCES}, ErrUnsupported, "privileged"},
		{"listener removed", Export{Transport: TCP, NQN: nqn1, Port: "1"}, syscall.EIO, ErrUnreachable, "own attempt failed too"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, c := newNVMeKernel(t, true)
			k.dir("sys/module/nvme_rdma")
			k.exchange = func(string) error { return tt.kernel }
			tt.export.Address = "127.0.0.1"
			if tt.export.Port == "" {
				tt.export.Port = port
			}
			_, err := c.Connect(t.Context(), tt.export)
			require.ErrorIs(t, err, tt.kind)
			require.ErrorIs(t, err, tt.kernel)
			require.ErrorContains(t, err, tt.says)
			t.Log(err)
		})
	}
}

func TestProbeFailsForNonNVMeServers(t *testing.T) {
	port := serveTCP(t, func(c net.Conn) {
		c.Write(bytes.Repeat([]byte("HTTP/1.1 400 Bad Request\r\n"), 10))
		io.Copy(io.Discard, c)
	})
	_, err := probeConnect(t.Context(), "127.0.0.1", port, nqn1, HostOf("worker-1"))
	require.ErrorContains(t, err, "does not speak NVMe/TCP")
}

// Without a valid host identifier, the probe must fail instead of reporting that the target accepts
// the host.
func TestProbeFailsWithoutAHostIdentifier(t *testing.T) {
	port := nvmeTarget(t, func(string, string) uint16 { return 0 })
	_, err := probeConnect(t.Context(), "127.0.0.1", port, nqn1, Host{UUID: "worker-1"})
	require.ErrorContains(t, err, "host identifier")
}
