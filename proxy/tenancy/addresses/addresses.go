// Package addresses compares the addresses of listeners with those that a tenant may use.
//
// The package must not depend on any other package of this module: its input is text.
package addresses

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// An Address is an IP address to listen at, with one port or with all ports.
type Address struct {
	ip   netip.Addr
	port uint16 // 0 means all ports
}

// Parse parses IP or IP:PORT.
func Parse(text string) (Address, error) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		return Address{ip: ip.Unmap()}, nil
	}
	ap, err := netip.ParseAddrPort(text)
	if err != nil || ap.Port() == 0 || ap.Addr().Zone() != "" {
		return Address{}, fmt.Errorf("%q must be an IP address, or one with its port: 192.0.2.10, 192.0.2.10:4420, [2001:db8::1]:4420", text)
	}
	return Address{ip: ap.Addr().Unmap(), port: ap.Port()}, nil
}

// Parts is the address of an NVMe-oF listener or an iSCSI portal in a call or a result.
type Parts struct{ Host, Port string }

// Set sets a member. It returns false for a member or value that a tenant's address must not
// contain.
func (a *Parts) Set(name, value string) bool {
	into := &a.Port
	switch name {
	case "traddr":
		into = &a.Host
	case "host":
		into, value = &a.Host, strings.TrimSuffix(strings.TrimPrefix(value, "["), "]")
	case "trsvcid", "port":
	case "trtype", "transport":
		upper := strings.ToUpper(value)
		return upper == "TCP" || upper == "RDMA"
	default:
		return name == "adrfam"
	}
	if *into != "" && *into != value {
		return false
	}
	*into = value
	return true
}

// In reports whether the address is in the list. Only an IP address in its usual spelling can be.
func (a Parts) In(list []Address) bool {
	ip, err := netip.ParseAddr(a.Host)
	number, portErr := strconv.ParseUint(a.Port, 10, 16)
	if err != nil || portErr != nil || number == 0 || strconv.FormatUint(number, 10) != a.Port {
		return false
	}
	for _, own := range list {
		if own.ip == ip.Unmap() && (own.port == 0 || uint64(own.port) == number) {
			return true
		}
	}
	return false
}
