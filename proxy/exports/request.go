package exports

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// driverPrefix is the prefix of the NQNs of the CSI driver's exports.
const driverPrefix = "nqn.2020-04.io.spdk.csi:uuid:"

// ErrRefused means that the target's state does not allow the request. Nothing was changed.
var ErrRefused = errors.New("refused")

// ErrInvalid means that a request would be invalid for any target.
var ErrInvalid = errors.New("invalid request")

// A refusal is an ErrRefused with a reason.
type refusal struct {
	reason string
	cause  error
}

func (r *refusal) Unwrap() error { return r.cause }

func (r *refusal) Error() string { return r.reason + ". Nothing was changed" }

func (r *refusal) Is(kind error) bool { return kind == ErrRefused }

func refuse(format string, args ...any) error { return &refusal{reason: fmt.Sprintf(format, args...)} }

// A Request describes how to export a volume.
type Request struct {
	Volume string // LVSTORE/LVOL or UUID
	// NQN is the NQN of the subsystem. If it ends with a colon, the volume's UUID is appended. If
	// it is empty, an existing export keeps its NQN, and the NQN of a new export is derived from
	// the volume's UUID and, if the user has a tenant, from the prefix that the tenant may use.
	NQN     string
	Serial  string // if empty, derived from the volume's UUID
	Hosts   []string
	AnyHost bool
	// Shared permits admitting a host in addition to the hosts already admitted.
	Shared bool
	// Listen lists the export's addresses. If it is empty, an existing export keeps its addresses,
	// and a new export listens at all addresses at which the target listens for other exports,
	// except those of tenants that do not own the volume.
	Listen []Portal
	// Key and CtrlrKey are the keys with which the hosts and the target authenticate. Either may be
	// nil.
	Key, CtrlrKey *Key
	// Allowed lists the methods that the user may call through the proxy. It is nil if there is no
	// proxy.
	Allowed []string
}

// A Key is a DH-HMAC-CHAP key in the target's keyring.
type Key struct {
	Name   string
	Secret string // empty if the key is already in the keyring
}

// A Portal is an address at which a target listens.
type Portal struct {
	Transport  string // TCP or RDMA
	Addr, Port string
}

// ParsePortal parses ADDRESS:PORT.
func ParsePortal(transport, text string) (Portal, error) {
	at, err := netip.ParseAddrPort(text)
	switch {
	case err != nil || at.Port() == 0:
		return Portal{}, fmt.Errorf("%w: %q is not an IP address with a port, such as 192.0.2.11:4420 or [2001:db8::11]:4420", ErrInvalid, text)
	}
	addr := at.Addr().Unmap() // SPDK does not accept ::ffff:192.0.2.11
	if addr.IsUnspecified() || addr.IsMulticast() || addr.Is6() && addr.IsLinkLocalUnicast() {
		return Portal{}, fmt.Errorf("%w: hosts cannot connect to %s: name an address of the storage server", ErrInvalid, addr)
	}
	return Portal{Transport: strings.ToUpper(transport), Addr: addr.String(), Port: fmt.Sprint(at.Port())}, nil
}

// String returns ADDRESS:PORT, with brackets around an IPv6 address.
func (p Portal) String() string { return net.JoinHostPort(p.Addr, p.Port) }

func (p Portal) address() spdkrpc.NVMfListenAddress {
	family := "IPv4"
	if ip, err := netip.ParseAddr(p.Addr); err == nil && ip.Is6() {
		family = "IPv6"
	}
	return spdkrpc.NVMfListenAddress{Trtype: p.Transport, Adrfam: &family, Traddr: p.Addr, Trsvcid: &p.Port}
}

func portalOf(a spdkrpc.NVMfTransportID) Portal {
	addr := a.Traddr
	if ip, err := netip.ParseAddr(addr); err == nil {
		addr = ip.String() // an address can be written in several ways
	}
	return Portal{Transport: strings.ToUpper(a.Trtype), Addr: addr, Port: a.Trsvcid}
}

func (r Request) check() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
	}
	switch {
	case len(r.Hosts) == 0 && !r.AnyHost:
		return invalid("name the hosts that may connect, or permit any host")
	case len(r.Hosts) > 0 && r.AnyHost:
		return invalid("either name hosts, or permit any host")
	case r.AnyHost && r.Key != nil:
		return invalid("keys belong to hosts: name the hosts that authenticate, instead of permitting any host")
	case r.CtrlrKey != nil && r.Key == nil:
		return invalid("the target authenticates only to hosts that authenticate themselves: give a key for the hosts")
	case r.NQN != "" && !rpcschema.ValidNQN(r.nqn("00000000-0000-0000-0000-000000000000")):
		return invalid("%q is not an NQN: use nqn.YEAR-MONTH.DOMAIN:NAME, such as nqn.2024-01.com.example:vol1", r.NQN)
	}
	for _, name := range append([]string{r.NQN, r.Serial}, r.Hosts...) {
		if !printable.Valid(name) {
			return invalid("%q contains a control character: remove it", name)
		}
	}
	for _, h := range r.Hosts {
		if !rpcschema.ValidNQN(h) {
			return invalid("%q is not the NQN of a host, which /etc/nvme/hostnqn of the host contains", h)
		}
	}
	return nil
}

// distinct returns the values without duplicates.
func distinct(values []string) (list []string) {
	for _, v := range values {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// nqn returns the NQN for a new export.
func (r Request) nqn(uuid string) string {
	nqn := cmp.Or(r.NQN, rpcschema.UUIDPrefix)
	if strings.HasSuffix(nqn, ":") {
		nqn += uuid
	}
	return nqn
}

// serial returns the serial number of a new export. NVMe allows 20 characters.
func (r Request) serial(uuid string) string {
	return cmp.Or(r.Serial, strings.ReplaceAll(uuid, "-", "")[:20])
}
