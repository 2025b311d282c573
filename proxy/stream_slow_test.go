package proxy

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/clientconn"
)

// fill sends calls but does not read their results, which are longer than the kernel's buffers. By
// default, the server's send buffer is at most 4 MiB long (net.ipv4.tcp_wmem); the test makes the
// client's receive buffer small.
func (c *streamClient) fill(b *bench) {
	require.NoError(c.t, c.ws.NetConn().(*net.TCPConn).SetReadBuffer(4096))
	for i := range 300 {
		b.post(createNamed(fmt.Sprint("m", i)))
	}
	const calls = 60 // each returns over 100 KB
	for i := range calls {
		c.send(fmt.Sprintf(`{"id":%d,"method":"bdev_get_bdevs"}`, i))
	}
	require.Eventually(c.t, func() bool { return b.log.Count(`"method":"bdev_get_bdevs"`) == calls }, long, 10*time.Millisecond)
}

// If the credentials of a client that does not read are revoked, its stream ends without delaying
// the end of other streams.
func TestRevokedClientThatDoesNotReadLosesItsStream(t *testing.T) {
	b := newBench(t, "v26.05")
	s := serve(t, b)
	deaf, other := s.stream("viewer", viewerPassword), s.stream("viewer", viewerPassword)
	deaf.fill(b)
	changed := *b.config
	changed.Users = slices.Clone(b.config.Users)
	changed.Users[1].PasswordHash = hashes()[adminPassword]
	require.NoError(t, b.proxy.Reload(&changed))
	code, _ := other.closed()
	require.Equal(t, websocket.ClosePolicyViolation, code)
	// The connections must close earlier than those of clients that merely do not read.
	require.Eventually(t, func() bool { return b.proxy.clients.Open() == 0 }, clientconn.WriteWait/2, 10*time.Millisecond)
	b.nothingIsHeld()
}
