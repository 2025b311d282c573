package connect

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// respond returns the address of a server that reads a request and sends this response.
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

// Only connections over NVMe-oF can be ended while they are in use.
func TestISCSIConnectionsAreNotReleased(t *testing.T) {
	c, err := New(HostOf("worker-1"), Options{})
	require.NoError(t, err)
	w, ok := c.(Watcher)
	require.True(t, ok)
	err = w.Release(t.Context(), Export{Transport: ISCSI, IQN: iqn1, Address: "192.0.2.1", Port: "3260"})
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
