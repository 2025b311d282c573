package service

import (
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/spdkgate/spdkgate/proxy"
)

// listen returns the socket that systemd opened, or else opens the address of the
// configuration. It is an error if the two differ: after a change of the
// configuration, the proxy must not silently continue to serve the old address.
func listen(server *proxy.Server, address string) (net.Listener, error) {
	passed := activation.Files(true)
	if len(passed) == 0 {
		return server.Listen()
	}
	if len(passed) > 1 {
		return nil, fmt.Errorf("systemd passed %d sockets, but the proxy serves one: leave one ListenStream= in spdk-proxy.socket", len(passed))
	}
	return listenerOf(passed[0], address)
}

// listenerOf makes a listener of systemd's socket. It is an error if the socket is
// not at address.
func listenerOf(socket *os.File, address string) (net.Listener, error) {
	defer func() { _ = socket.Close() }() // the listener has a duplicate
	l, err := net.FileListener(socket)
	if err != nil {
		return nil, fmt.Errorf("systemd's socket %s: %w", socket.Name(), err)
	}
	want, err := net.ResolveTCPAddr("tcp", address)
	if err == nil && !sameAddress(want, l.Addr()) {
		err = fmt.Errorf("systemd's socket is at %s, but listen in the configuration is %s. %s", l.Addr(), address, makeSame(address))
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func sameAddress(want *net.TCPAddr, have net.Addr) bool {
	tcp, ok := have.(*net.TCPAddr)
	if !ok || tcp.Port != want.Port {
		return false
	}
	if want.IP == nil { // ":9009" means both families, like [::]:9009
		return tcp.IP.Equal(net.IPv6unspecified)
	}
	return tcp.IP.Equal(want.IP)
}
