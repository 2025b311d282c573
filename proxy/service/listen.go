package service

import (
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/spdkgate/spdkgate/proxy"
)

// listen takes the socket that systemd has opened, or else opens the address of
// the configuration. The two must not contradict each other: whoever changes the
// configuration must not find the old address served as if nothing had happened.
func listen(server *proxy.Server, address string) (net.Listener, error) {
	passed := activation.Files(true)
	if len(passed) == 0 {
		return server.Listen()
	}
	if len(passed) > 1 {
		return nil, fmt.Errorf("systemd passes %d sockets, and one is served: leave one ListenStream= in spdk-proxy.socket", len(passed))
	}
	return accept(passed[0], address)
}

// accept makes a listener of systemd's socket, if that is at address.
func accept(socket *os.File, address string) (net.Listener, error) {
	defer func() { _ = socket.Close() }() // the listener has its own
	l, err := net.FileListener(socket)
	if err != nil {
		return nil, fmt.Errorf("systemd's socket %s: %w", socket.Name(), err)
	}
	want, err := net.ResolveTCPAddr("tcp", address)
	if err == nil && !same(want, l.Addr()) {
		err = fmt.Errorf("systemd's socket is at %s and listen of the configuration says %s. %s", l.Addr(), address, makeSame(address))
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func same(want *net.TCPAddr, have net.Addr) bool {
	tcp, ok := have.(*net.TCPAddr)
	if !ok || tcp.Port != want.Port {
		return false
	}
	if want.IP == nil { // ":9009" is both families, as [::]:9009 is
		return tcp.IP.Equal(net.IPv6unspecified)
	}
	return tcp.IP.Equal(want.IP)
}
