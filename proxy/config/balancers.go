package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// LoadBalancers describes the peers that connect on behalf of clients.
type LoadBalancers struct {
	Addresses []string `yaml:"addresses"`
	// ClientAddress selects how the load balancers transmit the client's address.
	ClientAddress string `yaml:"client_address" empty:"no"`
}

// These are the values of LoadBalancers.ClientAddress.
const (
	ProxyProtocol = "proxy_protocol"
	XForwardedFor = "x_forwarded_for"
)

func (c *Config) validateLoadBalancers() error {
	b := c.LoadBalancers
	_, err := b.Networks()
	switch {
	case len(b.Addresses) == 0 && b.ClientAddress == "":
		return nil
	case len(b.Addresses) == 0:
		err = errors.New("load_balancers.addresses is missing: list the addresses from which the load balancers connect")
	case b.ClientAddress != ProxyProtocol && b.ClientAddress != XForwardedFor:
		err = errors.Join(err, fmt.Errorf("load_balancers.client_address must be %s, or %s if the load balancers end TLS", ProxyProtocol, XForwardedFor))
	}
	return err
}

// Networks returns the load balancers' addresses.
func (b LoadBalancers) Networks() (list []netip.Prefix, err error) {
	var wrong []error
	for _, text := range b.Addresses {
		network, err := netip.ParsePrefix(text)
		if address, e := netip.ParseAddr(text); e == nil && address.Zone() == "" {
			network, err = address.Unmap().Prefix(address.Unmap().BitLen())
		}
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("load_balancers.addresses: %q is neither an address such as 192.0.2.10 nor a network such as 192.0.2.0/28", text))
		case network != network.Masked():
			wrong = append(wrong, fmt.Errorf("load_balancers.addresses: %s is an address within a network: write %s or %s", text, network.Addr(), network.Masked()))
		case network.Bits() == 0:
			wrong = append(wrong, fmt.Errorf("load_balancers.addresses: with %s, every client could claim any address: list only the load balancers", text))
		default:
			list = append(list, network)
		}
	}
	return list, errors.Join(wrong...)
}

// Equal reports whether both configurations are the same.
func (b LoadBalancers) Equal(other LoadBalancers) bool {
	return b.ClientAddress == other.ClientAddress && slices.Equal(b.Addresses, other.Addresses)
}
