package service

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/config"
)

// places contains the addresses at which the configuration makes the proxy listen.
type places struct {
	https string // address and port
	local string // path of the socket for programs on this host; "" if there is none
}

func placesOf(c *config.Config) places { return places{c.Listen, c.ListenUnix.Path} }

// listeners contains the service's open sockets.
type listeners struct {
	https net.Listener
	local net.Listener // nil if there is none
}

// serving returns the listeners for Server.Serve.
func (l listeners) serving() (https net.Listener, local []net.Listener) {
	if l.local != nil {
		local = append(local, l.local)
	}
	return l.https, local
}

func (l listeners) close() {
	for _, each := range []net.Listener{l.https, l.local} {
		if each != nil {
			_ = each.Close()
		}
	}
}

// listen returns the sockets that systemd opened, and opens configured sockets that systemd did not
// open. It returns an error if systemd has opened a socket that is not configured. Otherwise, after
// a change to the configuration, the proxy would silently continue to listen at the old address.
func listen(server *proxy.Server, want places) (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
			l = listeners{}
		}
	}()
	for _, socket := range activation.Files(true) {
		if err := l.take(socket, want); err != nil {
			return l, err
		}
	}
	if l.https == nil {
		if l.https, err = server.Listen(); err != nil {
			return l, err
		}
	}
	if l.local == nil {
		l.local, err = server.ListenLocal()
	}
	return l, err
}

// take creates a listener from one of systemd's sockets.
func (l *listeners) take(socket *os.File, want places) error {
	defer func() { _ = socket.Close() }() // the listener uses a duplicate
	made, err := net.FileListener(socket)
	if err != nil {
		return fmt.Errorf("systemd's socket %s: %w", socket.Name(), err)
	}
	place, err := &l.https, checkAddress(made.Addr(), want.https)
	if made.Addr().Network() == "unix" {
		place, err = &l.local, checkPath(made.Addr(), want.local)
	}
	if err == nil && *place != nil {
		err = errors.New("systemd passed several sockets of one kind, but the proxy serves one address and one path: keep only one ListenStream= for each in its socket unit")
	}
	if err != nil {
		_ = made.Close()
		return err
	}
	*place = made
	return nil
}

func checkAddress(have net.Addr, address string) error {
	want, err := net.ResolveTCPAddr("tcp", address)
	if err == nil && !sameAddress(want, have) {
		err = fmt.Errorf("systemd's socket is at %s, but listen in the configuration is %s. %s", have, address, makeSame(ownInstance(), address))
	}
	return err
}

func checkPath(have net.Addr, path string) error {
	if have.String() != path {
		return fmt.Errorf("systemd's socket is at %s, but listen_unix.path in the configuration is %q. %s", have, path, makeSamePath(ownInstance(), path))
	}
	return nil
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
