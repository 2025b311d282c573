package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// replicaNQN is the prefix of the NQNs of subsystems that export replicas of replicated volumes.
// Each publication of a volume has its own subsystem, so that the node of an earlier publication
// can never restore its connections (docs/design/replication.md).
const replicaNQN = "nqn.2020-04.io.spdk.csi:replica:"

// ReplicaNQN returns the NQN of the subsystem that exports the replica with this UUID to the node
// of a publication.
func ReplicaNQN(id string, generation uint64) string {
	return replicaNQN + id + ":" + strconv.FormatUint(generation, 10)
}

// CheckReplicable fails with [ErrNotReplicable] if the target cannot export replicas.
func (c Config) CheckReplicable() error {
	if c.Transport == ISCSI {
		return fmt.Errorf("%w: replicas need NVMe-oF, and target %s exports over iSCSI: use targets of type nvme-tcp or nvme-rdma", ErrNotReplicable, c.Name)
	}
	return nil
}

// AdmitReplica makes a replica reachable for the host of a publication, and for no other hosts.
// AdmitReplica first deletes the subsystems of all other publications of the replica. It admits the
// host last, after calling stillPublished, which must fail unless the publication is still the
// newest. This check prevents a delayed call from admitting the host of an earlier publication.
//
// If something else exports the replica, AdmitReplica fails with [ErrForeign] and changes nothing.
func (s *Service) AdmitReplica(ctx context.Context, id string, generation uint64, h Host, stillPublished func(context.Context) error) error {
	if err := s.CheckReplicable(); err != nil {
		return err
	}
	return nvmf{s}.admitReplica(ctx, id, generation, h, stillPublished)
}

// WithdrawReplica deletes all subsystems that export a replica, which closes their connections. It
// succeeds if no subsystem exports the replica.
func (s *Service) WithdrawReplica(ctx context.Context, id string) error {
	if err := s.CheckReplicable(); err != nil {
		return err
	}
	return nvmf{s}.withdrawReplica(ctx, id, "")
}

func (n nvmf) admitReplica(ctx context.Context, id string, generation uint64, h Host, stillPublished func(context.Context) error) error {
	if h.Keys != nil {
		return fmt.Errorf("%w: replicas are exported without authentication", ErrNoAuthentication)
	}
	fenced, err := n.isFenced(ctx, h)
	if err != nil {
		return err
	}
	nqn := ReplicaNQN(id, generation)
	if fenced {
		sub, err := n.existing(ctx, nqn)
		if err == nil {
			err = n.removeHost(ctx, sub, h)
		}
		return errors.Join(n.fencedError(h), err)
	}
	if err := n.withdrawReplica(ctx, id, nqn); err != nil {
		return err
	}
	if err := n.prepareReplica(ctx, id, nqn, h); err != nil {
		return err
	}
	if err := stillPublished(ctx); err != nil {
		return err
	}
	if err := n.admitOnly(ctx, nqn, h); err != nil {
		return err
	}
	// The state that is read back determines the result, not the responses to the steps.
	sub, err := n.subsystemNamed(ctx, nqn)
	if err == nil {
		fenced, err = n.isFenced(ctx, h)
	}
	switch {
	case err != nil:
		return err
	case fenced:
		return errors.Join(n.fencedError(h), n.removeHost(ctx, sub, h))
	case !exportsOnly(sub, id) || sub.AllowAnyHost || len(sub.Hosts) != 1 || sub.Hosts[0].NQN != h.NQN || len(n.missingListeners(sub)) == len(n.Listen):
		return fmt.Errorf("%w: subsystem %s changed during the call: try again", ErrBusy, nqn)
	}
	_, err = n.saved(ctx, &nqn, nil)
	return err
}

// existing returns the subsystem with this NQN, or nil if it does not exist.
func (n nvmf) existing(ctx context.Context, nqn string) (*spdkrpc.NVMfSubsystem, error) {
	sub, err := n.subsystemNamed(ctx, nqn)
	if errors.Is(err, errNotExported) {
		return nil, nil
	}
	return sub, err
}

// prepareReplica creates the subsystem with its namespace and listeners, and removes all hosts
// other than h.
func (n nvmf) prepareReplica(ctx context.Context, id, nqn string, h Host) error {
	sub, err := n.existing(ctx, nqn)
	if err != nil {
		return err
	}
	reread := func(done func(*spdkrpc.NVMfSubsystem) bool) func() (bool, error) {
		return func() (bool, error) {
			now, err := n.subsystemNamed(ctx, nqn)
			return err == nil && done(now), err
		}
	}
	var steps []readback.Step
	if sub == nil {
		steps = append(steps, readback.NewStep("create subsystem", func() error {
			return n.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{
				NQN: nqn, SerialNumber: new(serial(id)), ModelNumber: &id, MaxNamespaces: new(uint32(exclusiveNamespaces)), AllowAnyHost: new(false), ANAReporting: new(false),
			})
		}, reread(func(*spdkrpc.NVMfSubsystem) bool { return true })))
		sub = &spdkrpc.NVMfSubsystem{NQN: nqn}
	}
	if sub.AllowAnyHost {
		steps = append(steps, readback.NewStep("admit no other host", func() error {
			return n.rpc.NVMfSubsystemAllowAnyHost(ctx, spdkrpc.NVMfSubsystemAllowAnyHostParams{NQN: nqn, AllowAnyHost: false})
		}, reread(func(sub *spdkrpc.NVMfSubsystem) bool { return !sub.AllowAnyHost })))
	}
	for _, x := range sub.Hosts {
		if x.NQN != h.NQN {
			steps = append(steps, readback.NewStep("withdraw the admission of "+x.NQN, func() error {
				return n.rpc.NVMfSubsystemRemoveHost(ctx, spdkrpc.NVMfSubsystemRemoveHostParams{NQN: nqn, Host: x.NQN})
			}, reread(func(sub *spdkrpc.NVMfSubsystem) bool { return !admits(sub, x.NQN) })))
		}
	}
	if len(sub.Namespaces) == 0 {
		steps = append(steps, readback.NewStep("add namespace", func() error {
			nguid := strings.ReplaceAll(id, "-", "")
			_, err := n.rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{
				NQN: nqn, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: id, NSID: new(uint32(1)), UUID: &id, NGUID: &nguid},
			})
			return err
		}, reread(func(sub *spdkrpc.NVMfSubsystem) bool { return exportsOnly(sub, id) })))
	} else if !exportsOnly(sub, id) {
		return fmt.Errorf("%w: subsystem %s exports bdev %s: remove that namespace; subsystems with this name are reserved for the driver", ErrForeign, nqn, sub.Namespaces[0].BdevName)
	}
	if err := readback.RunAll(steps); err != nil {
		return err
	}
	return n.listenForReplica(ctx, nqn, sub, reread)
}

// listenForReplica adds the missing listeners. It succeeds if at least one listener exists.
func (n nvmf) listenForReplica(ctx context.Context, nqn string, sub *spdkrpc.NVMfSubsystem, reread func(func(*spdkrpc.NVMfSubsystem) bool) func() (bool, error)) error {
	var refused []error
	for _, p := range n.missingListeners(sub) {
		err := readback.NewStep("listen on "+p.String(), func() error { return n.listen(ctx, nqn, p) },
			reread(func(sub *spdkrpc.NVMfSubsystem) bool { return n.listens(sub, p) })).Run()
		if toleratedBeside(err) {
			refused = append(refused, err)
		} else if err != nil {
			return err
		}
	}
	if len(refused) == len(n.Listen) {
		return errors.Join(refused...)
	}
	return nil
}

// admitOnly admits a host to a subsystem that admits no other host.
func (n nvmf) admitOnly(ctx context.Context, nqn string, h Host) error {
	sub, err := n.subsystemNamed(ctx, nqn)
	if err != nil || admits(sub, h.NQN) {
		return err
	}
	return readback.NewStep("admit host "+h.NQN, func() error {
		return n.rpc.NVMfSubsystemAddHost(ctx, spdkrpc.NVMfSubsystemAddHostParams{NQN: nqn, Host: h.NQN})
	}, func() (bool, error) {
		now, err := n.subsystemNamed(ctx, nqn)
		return err == nil && admits(now, h.NQN), err
	}).Run()
}

// exportsOnly reports whether a subsystem's only namespace is the volume.
func exportsOnly(sub *spdkrpc.NVMfSubsystem, id string) bool {
	return len(sub.Namespaces) == 1 && sub.Namespaces[0].BdevName == id
}

// withdrawReplica deletes all subsystems of a replica except keep, even subsystems that exist only
// in the saved configuration. It fails and deletes nothing if another subsystem exports the
// replica.
func (n nvmf) withdrawReplica(ctx context.Context, id, keep string) error {
	subs, err := n.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
	if err != nil {
		return fmt.Errorf("list subsystems: %w", err)
	}
	ours := func(nqn string) bool { return strings.HasPrefix(nqn, replicaNQN+id+":") }
	var old []string
	for _, sub := range subs {
		switch {
		case sub.NQN == keep:
		case ours(sub.NQN):
			old = append(old, sub.NQN)
		case slices.ContainsFunc(sub.Namespaces, func(ns spdkrpc.NVMfNamespace) bool { return ns.BdevName == id }):
			return fmt.Errorf("%w: subsystem %s exports replica %s. Nothing was changed; delete that subsystem", ErrForeign, sub.NQN, id)
		}
	}
	for _, nqn := range old {
		err := readback.NewStep("delete subsystem "+nqn, func() error {
			return n.rpc.NVMfDeleteSubsystem(ctx, spdkrpc.NVMfDeleteSubsystemParams{NQN: nqn})
		}, func() (bool, error) {
			sub, err := n.existing(ctx, nqn)
			return err == nil && sub == nil, err
		}).Run()
		if err != nil {
			return err
		}
	}
	missing, err := n.saved(ctx, nil, nil)
	if err != nil {
		return err
	}
	for _, m := range missing {
		if m.NQN == nil || !ours(*m.NQN) || *m.NQN == keep {
			continue
		}
		if err := n.rpc.NVMfDeleteSubsystem(ctx, spdkrpc.NVMfDeleteSubsystemParams{NQN: *m.NQN}); err != nil && !readback.Refused(err) {
			return fmt.Errorf("delete subsystem %s from the saved configuration: %w", *m.NQN, err)
		}
	}
	return nil
}
