package web

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/gate"
)

// Balancers contains the load balancers that connect on behalf of clients.
type Balancers struct {
	networks []netip.Prefix
	headers  bool // the load balancers send the client's address in X-Forwarded-For
}

// ProxyProtocol reports whether the load balancers send the client's address before the first
// request.
func (b Balancers) ProxyProtocol() bool { return !b.headers }

// NewBalancers returns the Balancers in a configuration.
func NewBalancers(c *config.Config) (Balancers, error) {
	networks, err := c.LoadBalancers.Networks()
	return Balancers{networks, c.LoadBalancers.ClientAddress == config.XForwardedFor}, err
}

// Trusted reports whether an address belongs to a load balancer.
func (b Balancers) Trusted(a netip.Addr) bool {
	return slices.ContainsFunc(b.networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// sourceOf returns where a request came from. Each load balancer appends its peer's address to
// X-Forwarded-For, but the client may have sent the beginning of that header. Therefore, the
// client's address is the last address that does not belong to a load balancer.
func (b Balancers) sourceOf(r *http.Request) (auditlog.Source, error) {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr) // valid, because net/http set it
	source := auditlog.Source{Address: peer}
	if len(b.networks) == 0 {
		return source, nil
	}
	if through := clientconn.Peer(connOf(r)); b.Trusted(through) && !b.headers {
		source.Balancer = through
		return source, nil
	}
	balancer := peer.Addr().Unmap().WithZone("")
	if !b.headers || !b.Trusted(balancer) {
		return source, nil
	}
	source.Balancer = balancer
	hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for _, hop := range slices.Backward(hops) {
		client, ok := parseHop(strings.TrimSpace(hop))
		if !ok {
			return source, &gate.NoClientError{Balancer: balancer}
		}
		if !b.Trusted(client.Addr()) {
			source.Address = client
			return source, nil
		}
	}
	return source, &gate.NoClientError{Balancer: balancer}
}

// parseHop parses an address with or without a port. Without a port, the result has port 0.
func parseHop(text string) (netip.AddrPort, bool) {
	if hop, err := netip.ParseAddrPort(text); err == nil {
		return netip.AddrPortFrom(hop.Addr().Unmap().WithZone(""), hop.Port()), true
	}
	if open, bracketed := strings.CutPrefix(text, "["); bracketed {
		text = strings.TrimSuffix(open, "]")
	}
	hop, err := netip.ParseAddr(text)
	return netip.AddrPortFrom(hop.Unmap().WithZone(""), 0), err == nil
}
