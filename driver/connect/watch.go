package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// A Watcher is a Connector that also reports the kernel's view of what is attached, and restores
// connections that the kernel no longer tries to restore.
type Watcher interface {
	Connector
	// Paths reads the state of an export's connections. The state may be up to a second old. Paths
	// sends nothing to the target. If the kernel does not respond before ctx ends, the error wraps
	// [ErrTimeout]; until the kernel responds, further calls wait for the same response.
	Paths(ctx context.Context, e Export) (Paths, error)
	// Reconnect restores missing connections of an attached export. It does not change existing
	// connections, and skips addresses that do not respond. If the target exports another volume at
	// such an address, Reconnect fails and removes the connections that it made.
	Reconnect(ctx context.Context, e Export) error
	// Release ends all connections of an export over NVMe-oF, even while its device is in use. I/O
	// that is waiting for the target fails, so the caller must handle failed I/O, as a mirror does.
	// Release succeeds if nothing is attached.
	Release(ctx context.Context, e Export) error
}

// A Path is one connection of this node to an export: an NVMe controller, an iSCSI session or a
// loop device.
type Path struct {
	Name    string // nvme0, session1, loop3
	Address string // address of the target; empty if sysfs does not contain it
	State   string // as the kernel names it, such as live, connecting, LOGGED_IN
	Live    bool
}

// String returns the name of the path for logs and errors.
func (p Path) String() string {
	s := p.Name + " " + p.State
	if p.Address != "" {
		s += " at " + p.Address
	}
	return s
}

// Paths describes the kernel's view of an attached export.
type Paths struct {
	All []Path
	// Expected is the number of paths that [Connector.Connect] creates if all of the target's
	// addresses respond.
	Expected int
	// GivenUp is the number of expected paths that no longer exist and that the kernel is not
	// trying to restore.
	GivenUp int
	// Device is the export's device after verification of its identity. If there is no device,
	// NoDevice is the reason.
	Device   Device
	NoDevice error
}

// Live counts the paths that can transport I/O.
func (p Paths) Live() int {
	n := 0
	for _, path := range p.All {
		if path.Live {
			n++
		}
	}
	return n
}

// finish adds to p the device, or the reason why there is no device. finish returns an error only
// if the connection state remains unknown.
func (p Paths) finish(d Device, err error) (Paths, error) {
	p.Device, p.NoDevice = d, err
	for _, kind := range []error{nil, ErrNotConnected, ErrNoNamespace, ErrAmbiguous, ErrUnreachable} {
		if errors.Is(err, kind) {
			return p, nil
		}
	}
	return p, err
}

func (c *byTransport) Paths(ctx context.Context, e Export) (Paths, error) {
	return query(ctx, c, "paths of", e, func(t transport) (Paths, error) { return t.paths(e) })
}

func (c *byTransport) Reconnect(ctx context.Context, e Export) error {
	_, err := operate(ctx, c, "reconnect", e, func(ctx context.Context, t transport, step *operation.Step) (struct{}, error) {
		return struct{}{}, t.reconnect(ctx, e, step)
	})
	return err
}

// query reads the kernel's state of an export. Concurrent callers that need the same state share
// one read. The query has a time limit, because the kernel may be waiting for an unresponsive
// target.
func query[T any](ctx context.Context, c *byTransport, name string, e Export, read func(transport) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	t, err := c.of(e)
	var v T
	if err == nil {
		v, err = operation.Share(ctx, &c.operations, fmt.Sprintf("%s %v %s", name, e, e.NSUUID), func() (T, error) { return read(t) })
	}
	if err != nil {
		return v, fmt.Errorf("%s %v: %w", name, e, err)
	}
	return v, nil
}

// dialTimeout limits how long an address may take to respond. The driver makes the kernel connect
// only to addresses that respond.
const dialTimeout = 3 * time.Second

// viewAge is the maximum age of the connection state that [Watcher.Paths] returns.
const viewAge = time.Second

func (n *nvme) paths(e Export) (Paths, error) {
	v, err := n.view.get(n)
	if err != nil {
		return Paths{}, err
	}
	controllers := v.controllers[e.NQN]
	p, usable := Paths{Expected: 1}, 0
	if n.nativeMultipath() {
		portals := map[string]bool{} // an address that is listed twice has only one path
		for _, path := range e.paths() {
			portals[path.portal()] = true
		}
		p.Expected = len(portals)
	}
	for _, c := range controllers {
		p.All = append(p.All, Path{Name: c.name, Address: net.JoinHostPort(c.address, c.port), State: c.state, Live: c.state == "live"})
		if c.usable() {
			usable++
		}
	}
	p.GivenUp = max(0, p.Expected-usable)
	return p.finish(n.findBehind(e, controllers, func() (map[string][]string, error) { return v.subsystems, nil }))
}

// A view is a snapshot of this host's NVMe controllers in sysfs.
type view struct {
	at          time.Time
	controllers map[string][]controller // keyed by NQN
	subsystems  map[string][]string     // result of nvme.subsystems
}

// A sharedView lets many sequential or concurrent reads share one view of sysfs; otherwise, each
// read would read the controllers of all volumes.
type sharedView struct {
	// age is the maximum age of a view. Zero means that each read creates its own view.
	age time.Duration

	mu   sync.Mutex
	last view
}

func (s *sharedView) get(n *nvme) (view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.controllers != nil && time.Since(s.last.at) < s.age {
		return s.last, nil
	}
	v := view{at: time.Now(), controllers: map[string][]controller{}}
	all, err := n.controllersWhere(func(string) bool { return true })
	if err != nil {
		return v, err
	}
	for _, c := range all {
		v.controllers[c.nqn] = append(v.controllers[c.nqn], c)
	}
	if v.subsystems, err = n.subsystems(); err != nil {
		return v, err
	}
	s.last = v
	return v, nil
}

// reconnect creates missing controllers. If all controllers are missing, it also finds the device
// again, as connect does.
func (n *nvme) reconnect(ctx context.Context, e Export, step *operation.Step) error {
	existing, err := n.controllers(e.NQN)
	if err != nil {
		return err
	}
	if len(existing) == 0 {
		answering, err := n.answering(ctx, e, step)
		if err == nil {
			_, err = n.connect(ctx, answering, step)
		}
		return err
	}
	if !n.nativeMultipath() {
		return nil // a second controller would be a second block device
	}
	d, err := n.find(e)
	if err != nil {
		return err
	}
	var failures []error
	for _, p := range e.paths() {
		if err := n.addPath(ctx, p, d, step); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", p.portal(), err))
		}
	}
	return errors.Join(failures...)
}

// answering returns a copy of the export with only the addresses that respond.
func (n *nvme) answering(ctx context.Context, e Export, step *operation.Step) (Export, error) {
	var failures []error
	var found []Address
	for _, p := range e.paths() {
		if err := n.answers(ctx, p, step); err != nil {
			failures = append(failures, err)
			continue
		}
		found = append(found, Address{Addr: p.Address, Port: p.Port})
	}
	if len(found) == 0 {
		return e, errors.Join(failures...)
	}
	e.Address, e.Port, e.More = found[0].Addr, found[0].Port, found[1:]
	return e, nil
}

// answers checks that a server listens at the export's address before the kernel connects, because
// the kernel logs every failed attempt.
func (n *nvme) answers(ctx context.Context, e Export, step *operation.Step) error {
	if e.Transport != TCP {
		return nil
	}
	step.Doing("checking whether %s answers", e.portal())
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", e.portal())
	if err != nil {
		return fmt.Errorf("%w: %s: check whether the target is running and listens there, and whether the network lets this node through (%w)", ErrUnreachable, e.portal(), err)
	}
	return conn.Close()
}

// addPath creates a controller for one address of an attached export, unless the address already
// has a controller. If the new controller has no path to the export's device, addPath removes it.
func (n *nvme) addPath(ctx context.Context, e Export, d Device, step *operation.Step) error {
	if n.connected(ctx, e) {
		return nil
	}
	if err := n.answers(ctx, e, step); err != nil {
		return err
	}
	made, err := n.ensureController(ctx, e, step)
	if err != nil || !made {
		return err
	}
	if err := n.waitForPath(ctx, e, d, step); err != nil {
		return errors.Join(err, n.removePath(ctx, e, step))
	}
	n.log.Info("path restored", "nqn", e.NQN, "address", e.portal(), "device", d.Path)
	return nil
}

// waitForPath waits until the controller for an address has a path to a device. With native
// multipath, the kernel groups the paths of a namespace by its identifiers, so a different
// namespace never becomes a path to this device.
func (n *nvme) waitForPath(ctx context.Context, e Export, d Device, step *operation.Step) error {
	address, err := resolve(ctx, e.Address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.namespaceLimit())
	defer cancel()
	step.Doing("waiting for a path to %s at %s", d.Path, e.portal())
	var seen []string
	inTime, err := poll(ctx, func() (bool, error) {
		controllers, err := n.controllersAt(e, address)
		if err != nil {
			return false, err
		}
		seen = nil
		for _, c := range controllers {
			uuids, err := n.pathUUIDs(c)
			if err != nil {
				return false, err
			}
			if c.state == "live" && slices.Contains(uuids, d.UUID) {
				return true, nil
			}
			seen = append(seen, c.name+" "+c.state+" with namespaces "+strings.Join(uuids, ", "))
		}
		return false, nil
	})
	if err == nil && !inTime {
		err = fmt.Errorf("%w: the target does not provide %s (%s) at this address: %s: check nvmf_get_subsystems on the target", ErrNoNamespace, d.Path, d.UUID, strings.Join(seen, "; "))
	}
	return err
}

// With native multipath, a path to a namespace is a hidden device below its controller.
var pathPattern = regexp.MustCompile(`^nvme[0-9]+c[0-9]+n[0-9]+$`)

// pathUUIDs returns the UUIDs of the namespaces that a controller is a path to.
func (n *nvme) pathUUIDs(c controller) ([]string, error) {
	names, err := n.node.entries("sys/class/nvme", c.name)
	if err != nil {
		return nil, fmt.Errorf("list paths of %s: %w", c.name, err)
	}
	var uuids []string
	for _, name := range names {
		if pathPattern.MatchString(name) {
			uuids = append(uuids, uuidOf(n.node.attribute("sys/class/nvme", c.name, name, "wwid")))
		}
	}
	return uuids, nil
}

// removePath removes the controller for one address.
func (n *nvme) removePath(ctx context.Context, e Export, step *operation.Step) error {
	address, err := resolve(ctx, e.Address)
	if err != nil {
		return err
	}
	controllers, err := n.controllersAt(e, address)
	if err != nil {
		return err
	}
	return n.deleteControllers(controllers, step)
}

func (i *iscsi) paths(e Export) (Paths, error) {
	sessions, err := i.sessions(e.IQN)
	if err != nil {
		return Paths{}, err
	}
	p := Paths{Expected: 1}
	for _, s := range sessions {
		p.All = append(p.All, Path{Name: s.name, State: s.state, Live: s.state == "LOGGED_IN"})
	}
	if len(sessions) == 0 {
		p.GivenUp = 1
	}
	return p.finish(i.find(e))
}

// reconnect logs in again if there is no session. iscsid restores sessions that have failed.
func (i *iscsi) reconnect(ctx context.Context, e Export, step *operation.Step) error {
	sessions, err := i.sessions(e.IQN)
	if err == nil && len(sessions) == 0 {
		_, err = i.connect(ctx, e, step)
	}
	return err
}

func (l *loop) paths(e Export) (Paths, error) {
	d, err := l.find(e)
	p := Paths{Expected: 1}
	switch {
	case err == nil:
		p.All = []Path{{Name: strings.TrimPrefix(d.Path, l.node.path("dev")+"/"), State: "attached", Live: true}}
	case errors.Is(err, ErrNotConnected):
		p.GivenUp = 1
	}
	return p.finish(d, err)
}

func (l *loop) reconnect(ctx context.Context, e Export, step *operation.Step) error {
	_, err := l.find(e)
	if errors.Is(err, ErrNotConnected) {
		_, err = l.connect(ctx, e, step)
	}
	return err
}
