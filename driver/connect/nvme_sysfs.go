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

// controller is an NVMe controller of this node, as /sys/class/nvme shows it.
type controller struct {
	name      string // nvme0
	state     string // live, connecting, resetting, deleting, dead, …
	transport string
	address   string // traddr
	port      string // trsvcid
	model     string
}

// staysUp reports whether the controller works, or the kernel is about to make it work.
func (c controller) staysUp() bool {
	return c.state != "dead" && !strings.HasPrefix(c.state, "deleting")
}

// controllers lists the controllers that this host has for a subsystem. Those of another host NQN
// (made by an administrator, or by another driver) are not ours to see.
func (n *nvme) controllers(nqn string) ([]controller, error) {
	names, err := n.node.entries("sys/class/nvme")
	if err != nil {
		return nil, fmt.Errorf("list NVMe controllers: %w", err)
	}
	slices.Sort(names)
	var found []controller
	for _, name := range names {
		attribute := func(a string) string { return n.node.attribute("sys/class/nvme", name, a) }
		if host := attribute("hostnqn"); attribute("subsysnqn") != nqn || host != n.host.NQN && host != n.host.Multipath().NQN {
			continue
		}
		c := controller{name: name, state: attribute("state"), transport: attribute("transport"), model: attribute("model")}
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

// controllersAt narrows controllers to those on one address of the target.
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

// namespace is a block device that shows a namespace of a subsystem.
type namespace struct {
	name  string // nvme0n1
	uuid  string // empty if the namespace has none
	model string
}

// A namespace's block device is nvme<subsystem or controller>n<index>. The paths of native
// multipath are nvme<subsystem>c<controller>n<index>, hidden, and must not be used.
var namespacePattern = regexp.MustCompile(`^nvme[0-9]+n[0-9]+$`)

// namespaces lists the block devices of the controllers' namespaces. With native multipath they
// stand below the subsystem, without below each controller; sysfs may show both kinds at once.
func (n *nvme) namespaces(controllers []controller) ([]namespace, error) {
	subsystems, err := n.node.entries("sys/class/nvme-subsystem")
	if err != nil {
		return nil, fmt.Errorf("list NVMe subsystems: %w", err)
	}
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
		for _, s := range subsystems {
			below, err := n.node.entries("sys/class/nvme-subsystem", s)
			if err != nil {
				return nil, fmt.Errorf("list namespaces of %s: %w", s, err)
			}
			if slices.Contains(below, c.name) {
				add(c, below)
			}
		}
	}
	slices.SortFunc(found, func(a, b namespace) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

// namespaceUUID reads the UUID that the target gave the namespace. The attribute "uuid" cannot be
// trusted with it: for a namespace without UUID it shows the NGUID in UUID's clothes. A target
// that only gives an NGUID made of the UUID's bytes is understood too.
func (n *nvme) namespaceUUID(name string) string {
	wwid := n.node.attribute("sys/block", name, "wwid")
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

// choose picks the namespace of an export, by its UUID. For volumes of spdk-csi, of which only the
// lvol's UUID is known, a subsystem's only namespace will also do, provided that the subsystem
// names that lvol as its model, as spdk-csi made it, or that not even the lvol's UUID is known.
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
		return namespace{}, fmt.Errorf("%w: namespace %s shows as %s and %s: turn native NVMe multipath on (nvme_core.multipath=Y), or disconnect all but one path",
			ErrAmbiguous, want, matches[0].name, matches[1].name)
	case want == "" && len(all) > 1:
		return namespace{}, fmt.Errorf("%w: the subsystem has %d namespaces on this node and the volume's context names none: add %s to it", ErrAmbiguous, len(all), KeyNSUUID)
	}
	seen := make([]string, len(all))
	for i, ns := range all {
		seen[i] = fmt.Sprintf("%s (%s)", ns.name, cmp.Or(ns.uuid, "no UUID"))
	}
	return namespace{}, fmt.Errorf("%w: connected, but no namespace %s; there are: %s: look at nvmf_get_subsystems on the target",
		ErrNoNamespace, cmp.Or(want, "at all"), cmp.Or(strings.Join(seen, ", "), "none"))
}
