package connect

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// controller describes an NVMe controller of this node, from /sys/class/nvme.
type controller struct {
	name      string // nvme0
	nqn       string // NQN of the controller's subsystem
	state     string // live, connecting, resetting, deleting, dead, …
	transport string
	address   string // traddr
	port      string // trsvcid
	model     string
}

// usable reports whether the controller is live, or the kernel is still connecting it.
func (c controller) usable() bool {
	return c.state != "dead" && !strings.HasPrefix(c.state, "deleting")
}

// controllers lists this host's controllers for a subsystem. It ignores controllers with other host
// NQNs, because an administrator or another driver created them.
func (n *nvme) controllers(nqn string) ([]controller, error) {
	return n.controllersWhere(func(found string) bool { return found == nqn })
}

// controllersWhere lists this host's controllers for the subsystems whose NQNs satisfy wanted.
func (n *nvme) controllersWhere(wanted func(nqn string) bool) ([]controller, error) {
	names, err := n.node.entries("sys/class/nvme")
	if err != nil {
		return nil, fmt.Errorf("list NVMe controllers: %w", err)
	}
	slices.Sort(names)
	var found []controller
	for _, name := range names {
		attribute := func(a string) string { return n.node.attribute("sys/class/nvme", name, a) }
		nqn := attribute("subsysnqn")
		if !wanted(nqn) {
			continue
		}
		if host := attribute("hostnqn"); host != n.host.NQN && host != n.host.Multipath().NQN {
			continue
		}
		c := controller{name: name, nqn: nqn, state: attribute("state"), transport: attribute("transport"), model: attribute("model")}
		for field := range strings.SplitSeq(attribute("address"), ",") {
			switch key, value, _ := strings.Cut(field, "="); key {
			case "traddr":
				c.address = value
			case "trsvcid":
				c.port = value
			}
		}
		found = append(found, c)
	}
	return found, nil
}

// controllersAt lists the controllers for one address of the target.
func (n *nvme) controllersAt(e Export, address string) ([]controller, error) {
	all, err := n.controllers(e.NQN)
	return slices.DeleteFunc(all, func(c controller) bool {
		return c.transport != string(e.Transport) || c.port != e.Port || !sameAddress(c.address, address)
	}), err
}

func sameAddress(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x == y
}

func (n *nvme) liveControllers(e Export) ([]controller, error) {
	all, err := n.controllers(e.NQN)
	return slices.DeleteFunc(all, func(c controller) bool { return c.state != "live" }), err
}

// describe lists the states of an export's controllers, for errors.
func (n *nvme) describe(e Export) string {
	all, err := n.controllers(e.NQN)
	if err != nil {
		return err.Error()
	}
	if len(all) == 0 {
		return "none"
	}
	states := make([]string, len(all))
	for i, c := range all {
		states[i] = fmt.Sprintf("%s %s at %s:%s", c.name, c.state, c.address, c.port)
	}
	return strings.Join(states, "; ")
}

// A namespace is the block device of a namespace in a subsystem.
type namespace struct {
	name  string // nvme0n1
	uuid  string // empty if the namespace has no UUID
	model string
}

// The block device of a namespace is nvme<subsystem or controller>n<index>. The paths of native
// multipath are hidden devices named nvme<subsystem>c<controller>n<index>, which must not be used.
var namespacePattern = regexp.MustCompile(`^nvme[0-9]+n[0-9]+$`)

// subsystems lists the sysfs entries of all NVMe subsystems, including their controllers and
// namespaces.
func (n *nvme) subsystems() (map[string][]string, error) {
	names, err := n.node.entries("sys/class/nvme-subsystem")
	if err != nil {
		return nil, fmt.Errorf("list NVMe subsystems: %w", err)
	}
	found := make(map[string][]string, len(names))
	for _, name := range names {
		if found[name], err = n.node.entries("sys/class/nvme-subsystem", name); err != nil {
			return nil, fmt.Errorf("list namespaces of %s: %w", name, err)
		}
	}
	return found, nil
}

// namespaces lists the block devices of the controllers' namespaces. With native multipath, sysfs
// lists these devices below the subsystem; otherwise, it lists them below each controller. Devices
// of both kinds may exist at the same time.
func (n *nvme) namespaces(controllers []controller, subsystems map[string][]string) ([]namespace, error) {
	var found []namespace
	add := func(c controller, names []string) {
		for _, name := range names {
			if namespacePattern.MatchString(name) && !slices.ContainsFunc(found, func(f namespace) bool { return f.name == name }) {
				found = append(found, namespace{name: name, uuid: n.namespaceUUID(name), model: c.model})
			}
		}
	}
	for _, c := range controllers {
		below, err := n.node.entries("sys/class/nvme", c.name)
		if err != nil {
			return nil, fmt.Errorf("list namespaces of %s: %w", c.name, err)
		}
		add(c, below)
		for _, below := range subsystems {
			if slices.Contains(below, c.name) {
				add(c, below)
			}
		}
	}
	slices.SortFunc(found, func(a, b namespace) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

// namespaceUUID reads the UUID that the target gave the namespace, from the attribute "wwid". The
// attribute "uuid" is not reliable, because for a namespace without a UUID it contains the NGUID,
// formatted as a UUID. If the target provides only a 16-byte NGUID, namespaceUUID returns that
// NGUID as the UUID.
func (n *nvme) namespaceUUID(name string) string {
	return uuidOf(n.node.attribute("sys/block", name, "wwid"))
}

// uuidOf returns the UUID in an attribute "wwid", or an empty string if it contains none.
func uuidOf(wwid string) string {
	if id, ok := strings.CutPrefix(wwid, "uuid."); ok {
		return strings.ToLower(id)
	}
	if id, ok := strings.CutPrefix(wwid, "eui."); ok {
		if b, err := hex.DecodeString(id); err == nil && len(b) == 16 {
			return uuid.UUID(b).String()
		}
	}
	return ""
}

// choose returns an export's namespace, by its UUID. For volumes created by SPDK's spdk-csi, only
// the lvol's UUID is known. For such volumes, choose also accepts the only namespace of a subsystem
// if SPDK's spdk-csi set the subsystem's model to the lvol's UUID, or if even the lvol's UUID is
// unknown.
func choose(e Export, all []namespace) (namespace, error) {
	want := e.NSUUID
	if want == "" {
		want = e.LegacyUUID
	}
	var matches []namespace
	for _, ns := range all {
		if want != "" && ns.uuid == want {
			matches = append(matches, ns)
		}
	}
	if len(matches) == 0 && e.NSUUID == "" && len(all) == 1 && (want == "" || strings.EqualFold(all[0].model, want)) {
		matches = all
	}
	switch {
	case len(matches) == 1:
		return matches[0], nil
	case len(matches) > 1:
		return namespace{}, fmt.Errorf("%w: namespace %s appears as %s and %s: enable native NVMe multipath (nvme_core.multipath=Y), or disconnect all but one path",
			ErrAmbiguous, want, matches[0].name, matches[1].name)
	case want == "" && len(all) > 1:
		return namespace{}, fmt.Errorf("%w: the subsystem has %d namespaces on this node, and the volume's context does not name any of them: add %s to the context", ErrAmbiguous, len(all), KeyNSUUID)
	}
	seen := make([]string, len(all))
	for i, ns := range all {
		seen[i] = fmt.Sprintf("%s (%s)", ns.name, cmp.Or(ns.uuid, "no UUID"))
	}
	return namespace{}, fmt.Errorf("%w: connected, but no namespace %s; found %s: check nvmf_get_subsystems on the target",
		ErrNoNamespace, cmp.Or(want, "at all"), cmp.Or(strings.Join(seen, ", "), "none"))
}
