package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/coalesce"
	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// The target marks each fenced host with a special object: a subsystem without namespaces, hosts or
// listeners, or, over iSCSI, an initiator group that no target node refers to. SPDK saves both
// kinds of objects in its configuration. No volume is exported to a host that has a mark.
//
// Fence sets the mark before it lists the exports, and an export reads the mark before and after it
// admits a host. Therefore, if a host is admitted while it is being fenced, at least one of the two
// calls ends the admission.
const (
	fenceNQN = "nqn.2020-04.io.spdk.csi:fenced:"
	fenceIQN = "iqn.2026-11.io.spdkgate:fenced:"
)

// id returns the part of a host's names that identifies the host.
func (h Host) id() string { return h.NQN[strings.LastIndexByte(h.NQN, ':')+1:] }

// A Fencing is a change that Fence makes, or would make.
type Fencing struct {
	Export string // NQN or IQN; empty for the mark
	Change string // such as "remove host nqn.…"
	// Problem explains why the host can still use the export, and what to do about it. Problem is
	// empty if the host can no longer use the export.
	Problem string
}

// Fence removes a host from all exports of the target, including exports that the driver did not
// create. It also marks the host, so that Admit and Share refuse the host with [ErrFenced] until
// Unfence is called. The target closes the host's connections. node is a readable name for the
// host.
//
// If the mark cannot be set, Fence still removes the host from the exports, but returns an error.
// With dryRun, Fence changes nothing and returns the changes that it would make. Fence can be
// repeated.
func (s *Service) Fence(ctx context.Context, h Host, node string, dryRun bool) ([]Fencing, error) {
	if s.Transport == ISCSI {
		return iscsi{s}.fence(ctx, h, dryRun)
	}
	return nvmf{s}.fence(ctx, h, node, dryRun)
}

// Unfence removes a host's mark. was reports whether the host was marked.
func (s *Service) Unfence(ctx context.Context, h Host, dryRun bool) (was bool, err error) {
	if s.Transport == ISCSI {
		return iscsi{s}.unfence(ctx, h, dryRun)
	}
	return nvmf{s}.unfence(ctx, h, dryRun)
}

func (s *Service) fencedError(h Host) error {
	return fmt.Errorf("%w: target %s no longer exports volumes to host %s: restart the node, so that it has no pending writes, and run spdk-csi unfence", ErrFenced, s.Name, h.NQN)
}

// MarkFence is the first change that Fence makes for a host that is not yet fenced.
var MarkFence = Fencing{Change: "mark the node as fenced, so that no volume is published to it"}

func (n nvmf) isFenced(ctx context.Context, h Host) (bool, error) {
	mark := fenceNQN + h.id()
	return coalesce.Do(ctx, &n.marks, mark, func(ctx context.Context) (bool, error) {
		_, err := n.subsystemNamed(ctx, mark)
		if errors.Is(err, errNotExported) {
			return false, nil
		}
		return err == nil, err
	})
}

// readBack reads the volume's subsystem, and whether the host is fenced. If await is true, readBack
// also waits until all earlier changes are saved, and returns the saved calls that are missing on
// the target.
func (n nvmf) readBack(ctx context.Context, id string, h Host, await bool) (sub *spdkrpc.NVMfSubsystem, fenced bool, missing savedNVMf, err error) {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		sub, err = n.subsystem(gctx, id)
		return err
	})
	g.Go(func() (err error) {
		fenced, err = n.isFenced(gctx, h)
		return err
	})
	if await {
		g.Go(func() (err error) {
			missing, err = n.saved(gctx, nil, nil)
			return err
		})
	}
	err = g.Wait()
	return sub, fenced, missing, err
}

// withoutMark returns the error for a mark that could not be set. The host is still removed from
// all exports.
func withoutMark(failed error) error {
	if failed == nil {
		return nil
	}
	return fmt.Errorf("the node is not marked as fenced, so volumes may be published to it again: %w", failed)
}

func (n nvmf) fence(ctx context.Context, h Host, node string, dryRun bool) (all []Fencing, err error) {
	marked, err := n.isFenced(ctx, h)
	if err != nil {
		return nil, err
	}
	if !marked {
		all = append(all, MarkFence)
	}
	var unmarked error
	if !marked && !dryRun {
		unmarked = readback.NewStep("mark the node as fenced", func() error {
			return n.rpc.NVMfCreateSubsystem(ctx, spdkrpc.NVMfCreateSubsystemParams{NQN: fenceNQN + h.id(), SerialNumber: new(time.Now().UTC().Format(markTime)), ModelNumber: new(printable(node)), AllowAnyHost: new(false), MaxNamespaces: new(uint32(exclusiveNamespaces))})
		}, func() (bool, error) { return n.isFenced(ctx, h) }).Run()
		if unmarked != nil {
			all = all[:0]
		}
	}
	// Repeat, because a call in flight may admit the host again before it reads the mark.
	for range 3 {
		admitted, open, err := n.withHost(ctx, h)
		if err != nil {
			return all, errors.Join(err, withoutMark(unmarked))
		}
		for _, sub := range admitted {
			all = append(all, Fencing{Export: sub.NQN, Change: "remove host " + h.NQN})
		}
		if dryRun || len(admitted) == 0 {
			removed, err := n.fenceSaved(ctx, h, dryRun)
			return slices.Concat(all, removed, open), errors.Join(err, withoutMark(unmarked))
		}
		if err := n.removeFromEach(ctx, admitted, h); err != nil {
			return all, errors.Join(err, withoutMark(unmarked))
		}
	}
	return all, fmt.Errorf("%w: exports to the node keep reappearing: find the client that publishes volumes to it despite the mark, and repeat the command", ErrBusy)
}

// printable converts a node's id to a model number, which has at most 40 printable characters.
func printable(node string) string {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, node)
	return text[:min(len(text), 40)]
}

// withHost lists the subsystems that admit a host, and separately the subsystems that admit every
// host.
func (n nvmf) withHost(ctx context.Context, h Host) (admitted []spdkrpc.NVMfSubsystem, open []Fencing, err error) {
	subs, err := n.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
	if err != nil {
		return nil, nil, fmt.Errorf("list subsystems: %w", err)
	}
	for _, sub := range subs {
		if slices.ContainsFunc(sub.Hosts, func(x spdkrpc.NVMfSubsystemHost) bool { return h.is(x.NQN) }) {
			admitted = append(admitted, sub)
		}
		if sub.AllowAnyHost && len(sub.Namespaces) > 0 {
			open = append(open, Fencing{Export: sub.NQN, Problem: "it admits every host, so the node can use it: admit its hosts by name, or delete the subsystem"})
		}
	}
	return admitted, open, nil
}

func (n nvmf) removeFromEach(ctx context.Context, subs []spdkrpc.NVMfSubsystem, h Host) error {
	var g errgroup.Group // remove the host from every subsystem, even if some removals fail
	g.SetLimit(hostsInFlight)
	var mu sync.Mutex
	var failed []error
	for i := range subs {
		g.Go(func() error {
			if err := n.removeHost(ctx, &subs[i], h); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Errorf("subsystem %s: %w", subs[i].NQN, err))
			}
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(failed...)
}

func (n nvmf) unfence(ctx context.Context, h Host, dryRun bool) (bool, error) {
	marked, err := n.isFenced(ctx, h)
	if err != nil || dryRun {
		return marked, err
	}
	if !marked {
		return false, n.unfenceSaved(ctx, h)
	}
	err = readback.NewStep("remove the mark of a fenced node", func() error {
		return n.rpc.NVMfDeleteSubsystem(ctx, spdkrpc.NVMfDeleteSubsystemParams{NQN: fenceNQN + h.id()})
	}, func() (bool, error) {
		marked, err := n.isFenced(ctx, h)
		return err == nil && !marked, err
	}).Run()
	if err != nil {
		return true, err
	}
	return true, n.unfenceSaved(ctx, h)
}

// fenceMark returns a host. The initiator group of this host serves as the mark for h.
func fenceMark(h Host) Host { return Host{IQN: fenceIQN + h.id()} }

func isFenced(groups []spdkrpc.ISCSIInitiatorGroup, h Host) bool {
	return initiatorGroup(groups, fenceMark(h)) != 0
}

func (i iscsi) fence(ctx context.Context, h Host, dryRun bool) (all []Fencing, err error) {
	groups, err := i.initiatorGroups(ctx)
	if err != nil {
		return nil, err
	}
	var unmarked error
	if !isFenced(groups, h) {
		if !dryRun {
			_, unmarked = i.ensureInitiatorGroup(ctx, groups, fenceMark(h))
		}
		if unmarked == nil {
			all = append(all, MarkFence)
		}
	}
	for range 3 {
		now, err := i.read(ctx, "")
		if err != nil {
			return all, errors.Join(err, withoutMark(unmarked))
		}
		alone, others := i.withHost(now, h)
		for _, name := range alone {
			all = append(all, Fencing{Export: name, Change: "delete the iSCSI target, which only initiator " + h.IQN + " can use"})
		}
		if dryRun || len(alone) == 0 {
			saved, err := i.fenceSaved(ctx, h, alone, dryRun)
			return slices.Concat(all, saved, others), errors.Join(err, withoutMark(unmarked))
		}
		var failed []error
		for _, name := range alone {
			failed = append(failed, i.deleteNamed(ctx, name))
		}
		if err := errors.Join(failed...); err != nil {
			return all, errors.Join(err, withoutMark(unmarked))
		}
	}
	return all, fmt.Errorf("%w: exports to the node keep reappearing: find the client that publishes volumes to it despite the mark, and repeat the command", ErrBusy)
}

// withHost lists the target nodes that only this host can use, and separately the target nodes that
// other hosts can use too, because SPDK cannot end the sessions of a single initiator.
func (i iscsi) withHost(now iscsiState, h Host) (alone []string, others []Fencing) {
	for _, node := range now.nodes {
		var names []string
		for _, m := range node.PGIGMaps {
			names = append(names, initiators(now.groups, m.IGTag)...)
		}
		host := slices.Contains(names, h.IQN)
		rest := slices.ContainsFunc(names, func(name string) bool { return name != h.IQN })
		switch {
		case host && !rest:
			alone = append(alone, node.Name)
		case host || slices.Contains(names, anyInitiator):
			others = append(others, Fencing{Export: node.Name, Problem: "other initiators can use it too, and the node's sessions cannot be ended separately: delete the iSCSI target, or disconnect the node from the network"})
		}
	}
	return alone, others
}

func (i iscsi) unfence(ctx context.Context, h Host, dryRun bool) (bool, error) {
	groups, err := i.initiatorGroups(ctx)
	if err != nil {
		return false, err
	}
	tag := initiatorGroup(groups, fenceMark(h))
	if dryRun {
		return tag != 0, nil
	}
	if tag != 0 {
		if err := i.deleteGroup(ctx, tag); err != nil {
			return true, err
		}
	}
	return tag != 0, i.unfenceSaved(ctx, h)
}
