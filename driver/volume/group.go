package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A group snapshot consists of simultaneous snapshots of several volumes. The proxy of each target
// takes its snapshots in one call, and freezes all of the volumes before the first snapshot. The
// proxies of several targets wait for each other before their first snapshot (see moment.go). SPDK
// has no concept of groups, so the names of the members identify the group. Each attempt to take a
// group snapshot has its own id, and the names of its members contain this id and the number of
// members. Snapshots from two attempts are therefore never mistaken for one group, and missing
// members are detected.

// A Group describes a group snapshot.
type Group struct {
	ID        GroupID
	CreatedAt time.Time
	Snapshots []GroupMember // ordered by the UUIDs of their sources
}

// A GroupMember is one snapshot of a group.
type GroupMember struct {
	Target string
	Snapshot
}

// Members contains the UUIDs of volumes or snapshots on one target.
type Members struct {
	Service *Service
	UUIDs   []string
}

// MaxGroup is the maximum number of volumes in a group snapshot, which is the number that a proxy
// can freeze in one call.
const MaxGroup = 32

// TakeGroup takes simultaneous snapshots of volumes, as a group with the given name. If a group
// with that name exists, TakeGroup returns it, or fails with ErrIncompatible if the group contains
// snapshots of other volumes.
//
// If an interrupted attempt left behind only some of its snapshots, TakeGroup deletes these and
// starts over, because the missing snapshots can no longer be simultaneous.
//
// others returns all other targets. TakeGroup queries the other targets only if they may contain
// missing members of an earlier attempt.
func TakeGroup(ctx context.Context, name string, members []Members, others func() ([]Members, error)) (Group, error) {
	volumes, err := groupSources(ctx, members)
	if err != nil {
		return Group{}, err
	}
	found, cleared, err := clearHalfMade(ctx, name, members, others)
	if err == nil && cleared {
		volumes, err = groupSources(ctx, members) // the parents of the volumes have changed
	}
	if err != nil {
		return Group{}, err
	}
	if done := found.complete(); len(done) > 0 {
		return existingGroup(ctx, name, done, found, volumes)
	}
	id := newGroupID(name, members[0].Service.Now(), len(volumes), len(members))
	failed := deletedMeanwhile("one of the volumes", takeMembers(ctx, id, volumes))
	if failed != nil && len(members) == 1 && !readback.Clarifies(failed) {
		return Group{}, fmt.Errorf("%s: take group snapshot %q: %w", targetsOf(members), name, failed) // no snapshot was taken
	}
	if found, err = groupsOf(ctx, members, id.Hash); err != nil {
		return Group{}, errors.Join(failed, err)
	}
	done := found.complete()
	switch taken := slices.Contains(done, id); {
	case taken && len(done) > 1:
		// Another call took the same group concurrently. No caller has received the snapshots of
		// this call, so they can be deleted.
		return Group{}, errors.Join(fmt.Errorf("%s: %w: group snapshot %q was taken twice at the same time: try again", targetsOf(members), ErrBusy, name), removeMembers(ctx, found[id], nil))
	case taken:
		return describeGroup(ctx, id, found[id])
	case failed == nil:
		return Group{}, fmt.Errorf("%s: %w: group snapshot %q was taken, but is no longer complete: try again", targetsOf(members), ErrBusy, name)
	}
	failed = fmt.Errorf("%s: take group snapshot %q: %w", targetsOf(members), name, failed)
	if len(members) > 1 && !errors.Is(failed, spdkrpc.OutcomeUnknown) { // some targets have taken their snapshots
		failed = errors.Join(failed, removeMembers(ctx, found[id], nil))
	}
	return Group{}, failed
}

// A source is a volume with a snapshot in a group.
type source struct {
	*Service
	Volume
}

// groupSources looks up the volumes of a group.
func groupSources(ctx context.Context, members []Members) ([]source, error) {
	var sources []source
	for _, m := range members {
		for _, id := range m.UUIDs {
			sources = append(sources, source{m.Service, Volume{UUID: id}})
		}
	}
	if len(sources) > MaxGroup {
		return nil, fmt.Errorf("%s: %w: %d volumes are requested, and at most %d can be frozen together", targetsOf(members), ErrNotTogether, len(sources), MaxGroup)
	}
	slices.SortFunc(sources, func(a, b source) int { return cmp.Compare(a.UUID, b.UUID) })
	g, gctx := errgroup.WithContext(ctx)
	for i, s := range sources {
		g.Go(func() (err error) {
			sources[i].Volume, err = s.GetVolume(gctx, s.UUID)
			return err
		})
	}
	return sources, g.Wait()
}

// clearHalfMade deletes the members of incomplete attempts to take the group with this name, unless
// an attempt is complete, and returns the remaining attempts. It lists the attempts again after
// each deletion, because a target may still be executing an earlier call.
func clearHalfMade(ctx context.Context, name string, members []Members, others func() ([]Members, error)) (found groups, cleared bool, err error) {
	for try := range 3 {
		if found, err = groupsOf(ctx, members, GroupHash(name)); err != nil || len(found) == 0 || len(found.complete()) > 0 {
			return found, try > 0, err
		}
		for id, m := range found {
			if m, err = withOthers(ctx, id, m, others); err != nil {
				return nil, true, err
			}
			if len(m) == id.Size() {
				return nil, true, fmt.Errorf("%w: group snapshot %q exists as %s, with volumes on further targets: %s", ErrIncompatible, name, id, strings.Join(sourcesOf(m), ", "))
			}
			if err := removeHalfMade(ctx, m); err != nil {
				return nil, true, fmt.Errorf("delete the leftovers of an interrupted attempt to take group snapshot %q: %w", name, err)
			}
		}
	}
	return nil, true, fmt.Errorf("%s: %w: another call is taking group snapshot %q: try again", targetsOf(members), ErrBusy, name)
}

// withOthers adds the members of an attempt that are on other targets.
func withOthers(ctx context.Context, id GroupID, m []member, others func() ([]Members, error)) ([]member, error) {
	if !id.Several() {
		return m, nil
	}
	rest, err := others()
	if err != nil {
		return nil, err
	}
	found, err := groupsOf(ctx, rest, id.Hash)
	if err != nil {
		return nil, fmt.Errorf("find the snapshots of %s on other targets: %w", id, err)
	}
	return slices.Concat(m, found[id]), nil
}

// existingGroup returns the oldest group with this name, because that is the group that callers
// receive. It fails if the group contains snapshots of other volumes.
func existingGroup(ctx context.Context, name string, done []GroupID, found groups, volumes []source) (Group, error) {
	var wanted []string
	for _, v := range volumes {
		wanted = append(wanted, v.UUID)
	}
	id := done[0]
	if len(done) > 1 { // a call was executed late, after its reply had been lost
		var rivals []spdkrpc.LvolInfo
		var s *Service
		for _, d := range done {
			m := slices.MinFunc(found[d], func(a, b member) int { return cmp.Compare(a.lvol.Name, b.lvol.Name) })
			rivals, s = append(rivals, m.lvol), m.Service
		}
		first, err := s.oldest(ctx, rivals)
		if err != nil {
			return Group{}, err
		}
		id = done[slices.IndexFunc(rivals, func(l spdkrpc.LvolInfo) bool { return l.UUID == first })]
	}
	if is := sourcesOf(found[id]); !slices.Equal(is, wanted) {
		return Group{}, fmt.Errorf("%w: group snapshot %q exists as %s, taken of the volumes %s, but one of %s is requested",
			ErrIncompatible, name, id, strings.Join(is, ", "), strings.Join(wanted, ", "))
	}
	return describeGroup(ctx, id, found[id])
}

// takeMembers makes the proxies take the snapshots.
func takeMembers(ctx context.Context, id GroupID, volumes []source) error {
	requests := map[*Service][]spdkrpc.ProxySnapshotRequest{}
	g, gctx := errgroup.WithContext(ctx)
	for _, v := range volumes {
		requests[v.Service] = append(requests[v.Service], spdkrpc.ProxySnapshotRequest{LvolName: v.UUID, SnapshotName: id.snapshotOf(v.UUID), NQN: new(export.NQN(v.UUID))})
		g.Go(func() error { return v.checkDepth(gctx, v.Volume) })
		g.Go(func() error { return v.exports.CheckHoldsIO(gctx, v.UUID) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var err error
	if len(requests) > 1 {
		err = takeAtOneMoment(ctx, requests)
	} else {
		for s, r := range requests {
			_, err = s.rpc.SpdkgateLvolSnapshot(ctx, spdkrpc.SpdkgateLvolSnapshotParams{Snapshots: r})
		}
	}
	if errors.Is(err, spdkrpc.MethodNotFound) {
		return fmt.Errorf("%w: a target's proxy is too old to freeze several volumes simultaneously: upgrade spdk-proxy", ErrNotTogether)
	}
	return err
}

// describeGroup returns a group with its members.
func describeGroup(ctx context.Context, id GroupID, all []member) (Group, error) {
	group := Group{ID: id, CreatedAt: id.createdAt(), Snapshots: make([]GroupMember, len(all))}
	g, gctx := errgroup.WithContext(ctx)
	for i, m := range all {
		g.Go(func() error {
			snap, err := m.GetSnapshot(gctx, m.lvol.UUID)
			if errors.Is(err, ErrNotFound) {
				return fmt.Errorf("target %s: %w: %s, a snapshot of %s, was deleted during the call: try again", m.Name, ErrBusy, m.lvol.Alias, id)
			}
			group.Snapshots[i] = GroupMember{m.Name, snap}
			return err
		})
	}
	err := g.Wait()
	slices.SortFunc(group.Snapshots, func(a, b GroupMember) int { return cmp.Compare(a.SourceUUID, b.SourceUUID) })
	return group, err
}

// GetGroup returns a group snapshot. It fails with ErrNotFound unless all of the group's snapshots
// exist, and with ErrMismatch if these snapshots are not the given members.
func GetGroup(ctx context.Context, id GroupID, members []Members) (Group, error) {
	found, err := groupsOf(ctx, members, id.Hash)
	if err != nil {
		return Group{}, err
	}
	m := found[id]
	if len(m) != id.Size() {
		return Group{}, fmt.Errorf("%s: group snapshot %s: %w: %d of its %d snapshots exist: delete it", targetsOf(members), id, ErrNotFound, len(m), id.Size())
	}
	if err := checkMembers(ctx, id, m, members); err != nil {
		return Group{}, err
	}
	return describeGroup(ctx, id, m)
}

// DeleteGroup deletes a group snapshot and the leftovers of interrupted attempts. It treats clones
// in the same way as DeleteSnapshot. It fails with ErrMismatch, before deleting anything, if
// members are not the snapshots of the group; members may include snapshots that are already
// deleted. DeleteGroup succeeds if the group does not exist.
func DeleteGroup(ctx context.Context, id GroupID, members []Members, claim Claim) error {
	found, err := groupsOf(ctx, members, id.Hash)
	if err != nil {
		return err
	}
	if err := checkMembers(ctx, id, found[id], members); err != nil {
		return err
	}
	if err := removeMembers(ctx, found[id], claim); err != nil {
		return err
	}
	complete := found.complete()
	for other, m := range found {
		if other != id && !slices.Contains(complete, other) && !other.Several() { // only TakeGroup knows all targets
			if err := removeHalfMade(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}
