package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
)

// An Address is one of several addresses of a target.
type Address struct {
	// TargetAddr and TargetPort are the address that nodes connect to.
	TargetAddr string `json:"targetAddr"`
	TargetPort string `json:"targetPort,omitzero"`
	// ListenAddr and ListenPort are where the target listens, if that differs from the address that
	// nodes connect to.
	ListenAddr string `json:"listenAddr,omitzero"`
	ListenPort string `json:"listenPort,omitzero"`
	// Topology holds the labels that a node must have to use the address; if it is empty, every
	// node uses the address.
	Topology map[string]string `json:"topology,omitzero"`
}

// maxAddresses is the maximum number of listeners that SPDK allows for a subsystem.
const maxAddresses = 16

func (a *Address) setDefaults(port string) {
	a.TargetAddr, a.ListenAddr = withoutBrackets(a.TargetAddr), withoutBrackets(a.ListenAddr)
	a.TargetPort = cmp.Or(a.TargetPort, port)
	a.ListenAddr = cmp.Or(a.ListenAddr, a.TargetAddr)
	a.ListenPort = cmp.Or(a.ListenPort, a.TargetPort)
}

// withoutBrackets removes the brackets that surround an IPv6 address in a URL.
func withoutBrackets(address string) string {
	if inner, ok := strings.CutPrefix(address, "["); ok {
		return strings.TrimSuffix(inner, "]")
	}
	return address
}

func (a Address) check() (problems []error) {
	bad := func(key, value, want string) {
		problems = append(problems, fmt.Errorf("%s is %q; it must be %s", key, value, want))
	}
	if a.TargetAddr == "" {
		bad("targetAddr", a.TargetAddr, "the address at which nodes reach the target")
	}
	if ip, err := netip.ParseAddr(a.ListenAddr); (err != nil || ip.Zone() != "") && a.TargetAddr != "" {
		bad("listenAddr", a.ListenAddr, "the IP address on which the target listens (the default is targetAddr; if that is a host name, set listenAddr)")
	}
	for _, p := range []struct{ key, port string }{{"targetPort", a.TargetPort}, {"listenPort", a.ListenPort}} {
		if n, err := strconv.ParseUint(p.port, 10, 16); err != nil || n == 0 {
			bad(p.key, p.port, "a port number, in quotes")
		}
	}
	if err := request.CheckTopology(a.Topology); err != nil {
		problems = append(problems, fmt.Errorf("topology: %w", err))
	}
	return problems
}

func (n *Target) checkAddresses() (problems []error) {
	if len(n.Addresses) == 0 {
		return n.AllAddresses()[0].check()
	}
	if n.TargetAddr != "" || n.TargetPort != "" || n.ListenAddr != "" || n.ListenPort != "" {
		problems = append(problems, errors.New("addresses is combined with targetAddr, targetPort, listenAddr or listenPort: move these into addresses"))
	}
	if len(n.Addresses) > maxAddresses {
		problems = append(problems, fmt.Errorf("addresses has %d entries: SPDK allows %d", len(n.Addresses), maxAddresses))
	}
	for i, a := range n.Addresses {
		for _, err := range a.check() {
			problems = append(problems, fmt.Errorf("addresses[%d]: %w", i, err))
		}
		if slices.ContainsFunc(n.Addresses[:i], func(b Address) bool { return a.TargetAddr == b.TargetAddr && a.TargetPort == b.TargetPort }) {
			problems = append(problems, fmt.Errorf("addresses[%d]: targetAddr %q with port %s is listed twice", i, a.TargetAddr, a.TargetPort))
		}
	}
	return problems
}

// AllAddresses returns the target's one or more addresses.
func (n *Target) AllAddresses() []Address {
	if len(n.Addresses) > 0 {
		return n.Addresses
	}
	return []Address{{TargetAddr: n.TargetAddr, TargetPort: n.TargetPort, ListenAddr: n.ListenAddr, ListenPort: n.ListenPort}}
}

// Listen returns the portals where the target listens for nodes, without duplicates.
func (n *Target) Listen() (portals []export.Portal) {
	for _, a := range n.AllAddresses() {
		if p := (export.Portal{Addr: a.ListenAddr, Port: a.ListenPort}); !slices.Contains(portals, p) {
			portals = append(portals, p)
		}
	}
	return portals
}
