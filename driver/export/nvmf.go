package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// nvmf exports volumes over NVMe over Fabrics. Each volume has a subsystem with a single namespace,
// which has the volume's UUID. The subsystem's only hosts are the nodes that use the volume.
type nvmf struct{ *Service }

// The maximum number of namespaces shows whether a subsystem was created for one host or for
// several. SPDK reports this maximum, saves it in its configuration, and never changes it. Both
// kinds of subsystem actually contain only one namespace.
const (
	exclusiveNamespaces = 1
	sharedNamespaces    = 2
)

func isShared(sub *spdkrpc.NVMfSubsystem) bool {
	return sub.MaxNamespaces != nil && *sub.MaxNamespaces == sharedNamespaces
}

// admit exports the volume exclusively to one host, or to an additional host if shared is set. It
// changes nothing unless mayExport succeeds.
func (n nvmf) admit(ctx context.Context, id string, h Host, shared bool, mayExport func(context.Context) error) (Admission, error) {
	var sub *spdkrpc.NVMfSubsystem
	var release rpcschema.Release
	var fenced bool
	reading, rctx := errgroup.WithContext(ctx)
	reading.Go(func() (err error) {
		if release, err = n.rpc.Release(rctx); err != nil {
			return fmt.Errorf("read the target's release: %w", err)
		}
		return nil
	})
	reading.Go(func() error { return mayExport(rctx) })
	reading.Go(func() (err error) {
		fenced, err = n.isFenced(rctx, h)
		return err
	})
	reading.Go(func() (err error) {
		if sub, err = n.subsystem(rctx, id); errors.Is(err, errNotExported) {
			return nil
		}
		return err
	})
	if err := reading.Wait(); err != nil {
		return Admission{}, err
	}
	if fenced {
		// An earlier call may have admitted the host while it was being fenced.
		return Admission{}, errors.Join(n.fencedError(h), n.removeHost(ctx, sub, h))
	}
	if err := n.checkAuthenticates(h, release); err != nil {
		return Admission{}, err
	}
	if err := n.checkMayAdmit(ctx, id, sub, h, shared); err != nil {
		return Admission{}, err
	}
	before := sub
	if sub != nil && len(sub.Hosts) == 0 && !sub.AllowAnyHost && isShared(sub) != shared {
		// An interrupted call created the subsystem for one host instead of several, or vice versa.
		// No host can use this subsystem yet.
		if _, err := n.delete(ctx, id); err != nil {
			return Admission{}, err
		}
		sub = nil
	}
	// A step that the target has confirmed to this call is already saved. A step that was found to
	// be done may not be saved yet: either an earlier call did it, or this call did it and the
	// response was lost.
	var foundDone atomic.Bool
	notListening, err := n.run(ctx, id, sub, n.missingSteps(ctx, id, sub, h, shared, &foundDone), release, &foundDone)
	if err != nil {
		return Admission{}, err
	}
	// The state that is read back determines the result, not the responses to the steps.
	var missing savedNVMf
	if sub, fenced, missing, err = n.readBack(ctx, id, h, sub != nil || foundDone.Load()); err != nil {
		return Admission{}, err
	}
	if fenced || missing.marks(h) {
		return Admission{}, errors.Join(n.fencedError(h), n.removeHost(ctx, sub, h))
	}
	if left := n.missingSteps(ctx, id, sub, h, shared, &foundDone); len(left) > 0 {
		return Admission{}, fmt.Errorf("%w: the subsystem changed during the call, and the step %q must be repeated: try again", ErrBusy, left[0].What)
	}
	if len(n.missingListeners(sub)) == len(n.Listen) {
		return Admission{}, fmt.Errorf("%w: the subsystem lost its listeners during the call: try again", ErrBusy)
	}
	if err = n.checkMayAdmit(ctx, id, sub, h, shared); err == nil && !shared {
		err = missing.checkMayAdmit(n, id, h)
	}
	if err != nil {
		// Another controller admitted another host at the same time. At least one of the two calls
		// must withdraw its host.
		return Admission{}, errors.Join(err, n.removeHost(ctx, sub, h))
	}
	if h.keysChanged(before, sub) {
		if err := n.removeUnusedKeys(ctx); err != nil {
			return Admission{}, err
		}
	}
	return Admission{Multipath: h.Multipath != "" && reportsANA(sub), NotListening: notListening}, nil
}

// run performs the missing steps of an export, and adds the listeners. A new subsystem admits no
// host by default, so all steps after its creation run concurrently. On an existing subsystem, the
// listeners are added last, after all other hosts are excluded, so that these hosts cannot connect.
func (n nvmf) run(ctx context.Context, id string, sub *spdkrpc.NVMfSubsystem, steps []readback.Step, release rpcschema.Release, foundDone *atomic.Bool) (notListening, err error) {
	if sub != nil || !release.Has(rpcschema.QueuesSubsystemChanges) {
		if err := readback.RunAll(steps); err != nil {
			return nil, err
		}
		return n.addListeners(ctx, id, sub, 1, foundDone)
	}
	if err := steps[0].Run(); err != nil {
		return nil, err
	}
	var failed error
	var others sync.WaitGroup
	others.Go(func() { failed = readback.RunAtOnce(steps[1:]) })
	notListening, err = n.addListeners(ctx, id, sub, len(n.Listen), foundDone)
	others.Wait()
	return notListening, errors.Join(failed, err)
}

// checkMayAdmit fails if the subsystem exports another bdev, or if a host other than h could be
// writing to the volume, unless the hosts share the volume.
func (n nvmf) checkMayAdmit(ctx context.Context, id string, sub *spdkrpc.NVMfSubsystem, h Host, shared bool) error {
	if sub == nil {
		return nil
	}
	if err := checkExportsOnly(sub, id); err != nil {
		return err
	}
	switch ours := isShared(sub) && !sub.AllowAnyHost; {
	case ours && shared:
		return nil
	case ours && len(sub.Hosts) > 0:
		return fmt.Errorf("%w: the volume is published for several nodes, to host %s among others: unpublish it from all of them first", ErrInUse, sub.Hosts[0].NQN)
	}
	others := slices.Clone(sub.Hosts)
	slices.SortStableFunc(others, func(a, b spdkrpc.NVMfSubsystemHost) int { // Host.NQN, the better-known name, sorts first
		return cmp.Compare(truth(hostname.IsMultipath(a.NQN)), truth(hostname.IsMultipath(b.NQN)))
	})
	for _, other := range others {
		if !h.is(other.NQN) {
			return fmt.Errorf("%w: the volume is published to host %s: unpublish it there first", ErrInUse, other.NQN)
		}
	}
	if !sub.AllowAnyHost {
		return nil
	}
	return n.checkNobodyConnected(ctx, id, h.is)
}

// missingSteps lists the steps needed to export the volume to h, except for the listeners. It sets
// foundDone if a step fails because it is already done.
func (n nvmf) missingSteps(ctx context.Context, id string, sub *spdkrpc.NVMfSubsystem, h Host, shared bool, foundDone *atomic.Bool) []readback.Step {
	var steps []readback.Step
	add := func(action string, do func() error, done func(*spdkrpc.NVMfSubsystem) bool) {
		if sub != nil && done(sub) {
			return
		}
		steps = append(steps, readback.NewStep(action, do, func() (bool, error) {
			foundDone.Store(true)
			now, err := n.subsystem(ctx, id)
			return err == nil && done(now), err
		}))
	}
	nqn, namespaces := NQN(id), uint32(exclusiveNamespaces)
	if shared {
		namespaces = sharedNamespaces
	}
	add("create subsystem", func() error {
		return n.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{
			NQN: nqn, SerialNumber: new(serial(id)), ModelNumber: &id, MaxNamespaces: &namespaces, AllowAnyHost: new(false),
			ANAReporting: new(h.Multipath != ""), // allows the proxy to freeze the paths for a snapshot
		})
	}, func(*spdkrpc.NVMfSubsystem) bool { return true })
	add("add namespace", func() error {
		nguid := strings.ReplaceAll(id, "-", "")
		_, err := n.rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{
			NQN: nqn, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: id, NSID: new(uint32(1)), UUID: &id, NGUID: &nguid},
		})
		return err
	}, func(sub *spdkrpc.NVMfSubsystem) bool { return len(sub.Namespaces) == 1 })
	do, done := n.admission(ctx, nqn, h.NQN, sub, h)
	add("admit host "+h.NQN, do, done)
	// A subsystem without ANA reporting was created by an earlier version, and admits the host
	// under only one name.
	if h.Multipath != "" && (sub == nil || len(sub.Namespaces) == 0 || reportsANA(sub)) {
		do, done := n.admission(ctx, nqn, h.Multipath, sub, h)
		add("admit host "+h.Multipath, do, done)
	}
	if sub != nil { // a new subsystem admits no host by default
		add("admit no other host", func() error {
			return n.rpc.NVMfSubsystemAllowAnyHost(ctx, spdkrpc.NVMfSubsystemAllowAnyHostParams{NQN: nqn, AllowAnyHost: false})
		}, func(sub *spdkrpc.NVMfSubsystem) bool { return !sub.AllowAnyHost })
	}
	return steps
}

func admits(sub *spdkrpc.NVMfSubsystem, hostNQN string) bool {
	return slices.ContainsFunc(sub.Hosts, func(x spdkrpc.NVMfSubsystemHost) bool { return x.NQN == hostNQN })
}

// reportsANA reports whether a subsystem that has a namespace was created with ANA reporting.
func reportsANA(sub *spdkrpc.NVMfSubsystem) bool {
	return len(sub.Namespaces) > 0 && sub.Namespaces[0].Anagrpid != nil
}

// serial returns a serial number for the volume. NVMe allows 20 characters.
func serial(id string) string { return strings.ReplaceAll(id, "-", "")[:20] }

func (n nvmf) withdraw(ctx context.Context, id string, h *Host) error {
	sub, err := n.subsystem(ctx, id)
	deleted := false
	if err == nil {
		deleted, err = n.withdrawFrom(ctx, id, sub, h)
	}
	if err != nil && !errors.Is(err, errNotExported) {
		return err
	}
	if !deleted {
		if err := n.withdrawSaved(ctx, id, h); err != nil {
			return err
		}
	}
	if !n.usesKeys(sub, h) {
		return nil
	}
	return n.removeUnusedKeys(ctx)
}

// withdrawFrom ends a host's admission to a subsystem. deleted has the same meaning as for delete.
func (n nvmf) withdrawFrom(ctx context.Context, id string, sub *spdkrpc.NVMfSubsystem, h *Host) (deleted bool, err error) {
	admitted := func(x spdkrpc.NVMfSubsystemHost) bool { return h.is(x.NQN) }
	shared := h != nil && slices.ContainsFunc(sub.Hosts, func(x spdkrpc.NVMfSubsystemHost) bool { return !admitted(x) })
	if shared && slices.ContainsFunc(sub.Hosts, admitted) {
		if err := n.removeHost(ctx, sub, *h); err != nil {
			return false, err
		}
		if sub, err = n.subsystem(ctx, id); err != nil {
			return false, err
		}
	}
	if shared && len(sub.Hosts) > 0 {
		return false, nil
	}
	if h != nil && sub.AllowAnyHost {
		// The subsystem was created by SPDK's spdk-csi, and a node may still be using it.
		if err := n.checkNobodyConnected(ctx, id, h.is); err != nil {
			return false, err
		}
	}
	return n.delete(ctx, id)
}

// removeHost ends the admission of a host, under each of the host's names that sub admits.
func (n nvmf) removeHost(ctx context.Context, sub *spdkrpc.NVMfSubsystem, h Host) error {
	var steps []readback.Step
	if sub == nil {
		return nil
	}
	for _, x := range sub.Hosts {
		if !h.is(x.NQN) {
			continue
		}
		steps = append(steps, readback.NewStep("withdraw the admission of "+x.NQN, func() error {
			return n.rpc.NVMfSubsystemRemoveHost(ctx, spdkrpc.NVMfSubsystemRemoveHostParams{NQN: sub.NQN, Host: x.NQN})
		}, func() (bool, error) {
			now, err := n.subsystemNamed(ctx, sub.NQN)
			if errors.Is(err, errNotExported) {
				return true, nil
			}
			return err == nil && !admits(now, x.NQN), err
		}))
	}
	return readback.RunAll(steps)
}

func (n nvmf) removeUnused(ctx context.Context, id string) error {
	sub, err := n.subsystem(ctx, id)
	if errors.Is(err, errNotExported) {
		return n.withdrawSaved(ctx, id, nil)
	}
	if err != nil {
		return err
	}
	if err := checkExportsOnly(sub, id); err != nil {
		return err
	}
	for _, h := range sub.Hosts {
		return fmt.Errorf("%w: the volume is published to host %s: unpublish it first", ErrInUse, h.NQN)
	}
	if err := n.checkNobodyConnected(ctx, id, func(string) bool { return false }); err != nil {
		return err
	}
	deleted, err := n.delete(ctx, id)
	if err != nil || deleted {
		return err
	}
	return n.withdrawSaved(ctx, id, nil)
}

func (n nvmf) exists(ctx context.Context, id string) (bool, error) {
	_, err := n.subsystem(ctx, id)
	if errors.Is(err, errNotExported) {
		return false, nil
	}
	return err == nil, err
}

// delete deletes the volume's subsystem. If the target confirmed the deletion, deleted is true, and
// the saved configuration no longer contains the subsystem. If deleted is false without an error,
// the subsystem was already gone, or the response was lost.
func (n nvmf) delete(ctx context.Context, id string) (deleted bool, err error) {
	deleted = true
	err = readback.NewStep("delete subsystem "+NQN(id), func() error {
		return n.rpc.NVMfDeleteSubsystem(ctx, spdkrpc.NVMfDeleteSubsystemParams{NQN: NQN(id)})
	}, func() (bool, error) {
		deleted = false
		_, err := n.subsystem(ctx, id)
		return errors.Is(err, errNotExported), nil
	}).Run()
	return deleted && err == nil, err
}

// subsystem reads the volume's subsystem. It fails with errNotExported if the volume has no
// subsystem.
func (n nvmf) subsystem(ctx context.Context, id string) (*spdkrpc.NVMfSubsystem, error) {
	return n.subsystemNamed(ctx, NQN(id))
}

// subsystemNamed reads the subsystem with an NQN. It fails with errNotExported if the subsystem
// does not exist.
func (n nvmf) subsystemNamed(ctx context.Context, nqn string) (*spdkrpc.NVMfSubsystem, error) {
	subs, err := n.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: &nqn})
	switch {
	case errors.Is(err, spdkrpc.NoSuchDevice):
		return nil, errNotExported
	case errors.Is(err, spdkrpc.InvalidParams):
		return nil, n.missingOrRefused(ctx, nqn, err)
	case err != nil:
		return nil, fmt.Errorf("read subsystem %s: %w", nqn, err)
	case len(subs) != 1:
		return nil, fmt.Errorf("read subsystem %s: the target returned %d subsystems instead of one", nqn, len(subs))
	}
	return &subs[0], nil
}

// missingOrRefused interprets the error -32602 from a query for a subsystem. On SPDK v26.09 and
// later, this error means that the subsystem does not exist; on earlier releases, it can have other
// causes. Once the target is known to run v26.09 or later, its release is not read again.
func (n nvmf) missingOrRefused(ctx context.Context, nqn string, refused error) error {
	if n.refusesUnknown.Load() {
		return errNotExported
	}
	v, err := n.rpc.SpdkGetVersion(ctx)
	if err != nil {
		return fmt.Errorf("read the target's release, to find out whether subsystem %s exists: %w", nqn, err)
	}
	if v.Fields.Major < 26 || v.Fields.Major == 26 && v.Fields.Minor < 9 {
		return fmt.Errorf("read subsystem %s: %w", nqn, refused)
	}
	n.refusesUnknown.Store(true)
	return errNotExported
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
