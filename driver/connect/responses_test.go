package connect

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// respond returns the address of a server that reads the first request, sends this response and
// ends the stream.
func respond(t *testing.T, response string) (address, port string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, response)
		// Closing the connection now would reset it if another request follows.
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}()
	address, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return address, port
}

// The status of a login is bytes 36 and 37 of an iSCSI login response. Any other response is
// reported as such.
func TestOnlyLoginResponsesHaveAStatus(t *testing.T) {
	padded := func(s string) string { return s + strings.Repeat("\x00", 48-len(s)) }
	for name, c := range map[string]struct {
		response string
		status   iscsiStatus
		says     string
	}{
		"success":     {padded("\x23"), 0, ""},
		"not found":   {padded("\x23" + strings.Repeat("\x00", 35) + "\x02\x03"), 0x0203, ""},
		"flags":       {padded("\xe3" + strings.Repeat("\x00", 35) + "\x02\x01"), 0x0201, ""},
		"HTTP":        {padded("HTTP/1.1 400 Bad Request"), 0, "does not speak iSCSI"},
		"too short":   {padded("\x23")[:47], 0, "read iSCSI login response"},
		"no response": {"", 0, "read iSCSI login response"},
	} {
		address, port := respond(t, c.response)
		got, err := askLogin(t.Context(), Export{Address: address, Port: port, IQN: iqn1}, HostOf("worker-1"))
		if c.says == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.says, name)
		}
		assert.Equal(t, c.status, got, name)
	}
}

// The status of a Fabrics Connect is in the last bytes of the response. A target that requires
// authentication says so in the first word. Any other response is reported as such.
func TestOnlyCapsuleResponsesHaveAStatus(t *testing.T) {
	initialized := string(header(1, 128, 0, 128))
	capsule := func(set map[int]byte) string {
		pdu := header(5, 24, 0, 24)
		for at, b := range set {
			pdu[at] = b
		}
		return string(pdu)
	}
	valid := HostOf("worker-1")
	for name, c := range map[string]struct {
		response string
		host     Host
		status   nvmeStatus
		says     string
	}{
		"success":                 {initialized + capsule(nil), valid, 0, ""},
		"phase tag":               {initialized + capsule(map[int]byte{22: 1}), valid, 0, ""},
		"invalid host":            {initialized + capsule(map[int]byte{22: 0x08, 23: 0x03}), valid, 0x184, ""},
		"do not retry":            {initialized + capsule(map[int]byte{22: 0x08, 23: 0x83}), valid, 0x184, ""},
		"secure authentication":   {initialized + capsule(map[int]byte{10: 4}), valid, mustAuthenticate, ""},
		"any authentication":      {initialized + capsule(map[int]byte{10: 2}), valid, mustAuthenticate, ""},
		"refused nevertheless":    {initialized + capsule(map[int]byte{10: 2, 22: 0x08, 23: 0x03}), valid, 0x184, ""},
		"HTTP":                    {"HTTP/1.1 400 Bad Request" + strings.Repeat("\x00", 128), valid, 0, "does not speak NVMe/TCP"},
		"no response":             {"", valid, 0, "read NVMe/TCP response"},
		"no response to connect":  {initialized, valid, 0, "read NVMe/TCP response"},
		"host without identifier": {initialized + capsule(nil), Host{NQN: valid.NQN}, 0, "host identifier"},
	} {
		address, port := respond(t, c.response)
		got, err := probeConnect(t.Context(), address, port, nqn1, c.host)
		if c.says == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.says, name)
		}
		assert.Equal(t, c.status, got, name)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	address, port := respond(t, "")
	got, err := probeConnect(cancelled, address, port, nqn1, valid)
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, got)
}

// Only connections over NVMe-oF can be ended while they are in use.
func TestISCSIConnectionsAreNotReleased(t *testing.T) {
	c, err := New(HostOf("worker-1"), Options{})
	require.NoError(t, err)
	err = c.Release(t.Context(), Export{Transport: ISCSI, IQN: iqn1, Address: "192.0.2.1", Port: "3260"})
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "iscsi")
}

// Each transport has one authentication method.
func TestAuthenticationMethodFitsTheTransport(t *testing.T) {
	for transport, fits := range map[Transport]hostauth.Method{TCP: hostauth.DHCHAP, RDMA: hostauth.DHCHAP, ISCSI: hostauth.CHAP, Loop: hostauth.None} {
		for _, method := range []hostauth.Method{hostauth.None, hostauth.DHCHAP, hostauth.CHAP, "other"} {
			e := Export{Transport: transport}
			err := e.parseAuthentication(map[string]string{hostauth.KeyMethod: string(method), hostauth.KeyBoth: "true"})
			if method == hostauth.None || method == fits {
				require.NoError(t, err, "%s over %s", method, transport)
				assert.Equal(t, method, e.Authentication)
				assert.True(t, e.BothAuthenticate)
			} else {
				require.ErrorIs(t, err, ErrInvalidExport, "%s over %s", method, transport)
			}
		}
	}
}
