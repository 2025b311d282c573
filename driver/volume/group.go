package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A group snapshot is one snapshot of each of several volumes, all of the same moment. The proxy takes them in one call: it
// freezes all volumes before the first snapshot. SPDK knows no groups, so the names of the members say which they are. Each
// attempt to take a group has an id of its own, which is in the names of all its members together with their number. So
// members of two moments are never taken for one group, and a group of which a member is missing is recognised.

// A Group describes a group snapshot.
type Group struct {
	ID        GroupID
	CreatedAt time.Time
	Snapshots []Snapshot // ordered by the UUIDs of their sources
}

// A GroupID identifies a group snapshot on a target.
type GroupID struct {
	Hash    string // of the group's requested name
	Attempt string // its time, three random characters, and one for the number of members
}

// MaxGroup is how many volumes a group snapshot can have: as many as the proxy freezes in one call.
const MaxGroup = 32

const base32Digits = "abcdefghijklmnopqrstuvwxyz234567"

var groupID = regexp.MustCompile(`^group\.([a-z2-7]{12})\.([0-9a-f]{8}[a-z2-7]{4})$`)

// GroupHash returns the hash of a requested name in the ids of groups.
func GroupHash(name string) string { return hash(name)[:shortHash] }

// ParseGroupID parses what String returned.
func ParseGroupID(s string) (id GroupID, ok bool) {
	m := groupID.FindStringSubmatch(s)
	if m == nil {
		return GroupID{}, false
	}
	return GroupID{Hash: m[1], Attempt: m[2]}, true
}

func newGroupID(name string, at time.Time, size int) GroupID {
	attempt := fmt.Appendf(nil, "%08x", uint32(at.Unix()))
	for range 3 {
		attempt = append(attempt, base32Digits[rand.IntN(len(base32Digits))])
	}
	return GroupID{Hash: GroupHash(name), Attempt: string(append(attempt, base32Digits[size-1]))}
}

func (g GroupID) String() string { return "group." + g.Hash + "." + g.Attempt }

// Size is the number of members.
func (g GroupID) Size() int {
	return strings.IndexByte(base32Digits, g.Attempt[len(g.Attempt)-1]) + 1
}

func (g GroupID) createdAt() time.Time { return secondsOf(g.Attempt[:8]) }

// member returns the name of the snapshot of a volume.
func (g GroupID) member(source string) string {
	return snapPrefix + g.Hash + "." + strings.ReplaceAll(source, "-", "") + "." + g.Attempt
}

// members are the snapshots of one attempt that exist.
type members []spdkrpc.LvolInfo

func (m members) sources() (ids []string) {
	for _, l := range m {
		n, _ := parseName(l.Name)
		ids = append(ids, n.source)
	}
	slices.Sort(ids)
	return ids
}

// groups maps the attempts of one name to their members.
type groups map[GroupID]members

// complete returns the attempts that have all their members, the one that was requested first before others.
func (g groups) complete() (ids []GroupID) {
	for id, m := range g {
		if len(m) == id.Size() {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b GroupID) int { return cmp.Compare(a.Attempt, b.Attempt) })
	return ids
}

// groupsOf lists the attempts of a name, by the name's hash.
func (s *Service) groupsOf(ctx context.Context, hash string) (groups, error) {
	lvols, err := s.lvols(ctx)
	if err != nil {
		return nil, err
	}
	found := groups{}
	for _, l := range lvols {
		if n, ours := parseName(l.Name); ours && n.group.Hash == hash {
			found[n.group] = append(found[n.group], l)
		}
	}
	return found, nil
}

// SnapshotGroup takes snapshots of volumes at the same moment, as a group with a name. If a group with that name exists,
// SnapshotGroup returns it, or fails with ErrIncompatible if it is of other volumes.
//
// If an earlier attempt was interrupted so that only some of its snapshots exist, SnapshotGroup deletes them and begins
// again: what it would add now would be of another moment.
func (s *Service) SnapshotGroup(ctx context.Context, name string, sources []string) (Group, error) {
	volumes, err := s.groupSources(ctx, sources)
	if err != nil {
		return Group{}, err
	}
	found, cleared, err := s.clearHalfMade(ctx, name)
	if err == nil && cleared {
		volumes, err = s.groupSources(ctx, sources) // with other parents
	}
	if err != nil {
		return Group{}, err
	}
	if done := found.complete(); len(done) > 0 {
		return s.existingGroup(ctx, name, done, found, volumes)
	}
	id := newGroupID(name, s.Now(), len(volumes))
	failed := s.takeGroup(ctx, id, volumes)
	if failed != nil && !readback.Clarifies(failed) {
		return Group{}, fmt.Errorf("target %s: take group snapshot %q: %w", s.Name, name, failed)
	}
	if found, err = s.groupsOf(ctx, id.Hash); err != nil {
		return Group{}, err
	}
	done := found.complete()
	switch taken := slices.Contains(done, id); {
	case taken && len(done) > 1:
		// Another call took the group at the same time. No caller knows of this one.
		return Group{}, errors.Join(fmt.Errorf("target %s: %w: group snapshot %q was taken twice at the same time: try again", s.Name, ErrBusy, name), s.removeMembers(ctx, found[id], nil))
	case taken:
		return s.describeGroup(ctx, id, found[id])
	case failed == nil:
		return Group{}, fmt.Errorf("target %s: %w: group snapshot %q was taken, but is no longer complete: try again", s.Name, ErrBusy, name)
	}
	return Group{}, fmt.Errorf("target %s: take group snapshot %q: %w", s.Name, name, failed)
}

// groupSources looks up the volumes of a group.
func (s *Service) groupSources(ctx context.Context, sources []string) ([]Volume, error) {
	if len(sources) > MaxGroup {
		return nil, fmt.Errorf("target %s: %w: %d volumes are requested, and at most %d can be frozen together", s.Name, ErrNotTogether, len(sources), MaxGroup)
	}
	volumes := make([]Volume, len(sources))
	g, gctx := errgroup.WithContext(ctx)
	for i, id := range slices.Sorted(slices.Values(sources)) {
		g.Go(func() (err error) {
			volumes[i], err = s.GetVolume(gctx, id)
			return err
		})
	}
	return volumes, g.Wait()
}

// clearHalfMade deletes the members of attempts of a name that are not complete, unless one is complete. It returns the
// attempts that are left. An earlier call may still be executed, so it looks again after each deletion.
func (s *Service) clearHalfMade(ctx context.Context, name string) (found groups, cleared bool, err error) {
	for try := range 3 {
		if found, err = s.groupsOf(ctx, GroupHash(name)); err != nil || len(found) == 0 || len(found.complete()) > 0 {
			return found, try > 0, err
		}
		for _, m := range found {
			if err := s.removeHalfMade(ctx, m); err != nil {
				return nil, true, fmt.Errorf("delete what an interrupted attempt has left of group snapshot %q: %w", name, err)
			}
		}
	}
	return nil, true, fmt.Errorf("target %s: %w: another call is taking group snapshot %q: try again", s.Name, ErrBusy, name)
}

// existingGroup returns the group of a name that callers have got: the oldest. It is of these volumes, or the call fails.
func (s *Service) existingGroup(ctx context.Context, name string, done []GroupID, found groups, volumes []Volume) (Group, error) {
	var wanted []string
	for _, v := range volumes {
		wanted = append(wanted, v.UUID)
	}
	id := done[0]
	if len(done) > 1 { // a call whose reply was lost was executed late
		var rivals []spdkrpc.LvolInfo
		for _, d := range done {
			rivals = append(rivals, slices.MinFunc(found[d], func(a, b spdkrpc.LvolInfo) int { return cmp.Compare(a.Name, b.Name) }))
		}
		first, err := s.oldest(ctx, rivals)
		if err != nil {
			return Group{}, err
		}
		id = done[slices.IndexFunc(rivals, func(l spdkrpc.LvolInfo) bool { return l.UUID == first })]
	}
	if is := found[id].sources(); !slices.Equal(is, wanted) {
		return Group{}, fmt.Errorf("target %s: %w: group snapshot %q exists as %s, taken of the volumes %s, but one of %s is requested",
			s.Name, ErrIncompatible, name, id, strings.Join(is, ", "), strings.Join(wanted, ", "))
	}
	return s.describeGroup(ctx, id, found[id])
}

// takeGroup has the proxy take the snapshots.
func (s *Service) takeGroup(ctx context.Context, id GroupID, volumes []Volume) error {
	g, gctx := errgroup.WithContext(ctx)
	var p spdkrpc.SpdkgateLvolSnapshotParams
	for _, v := range volumes {
		p.Snapshots = append(p.Snapshots, spdkrpc.ProxySnapshotRequest{LvolName: v.UUID, SnapshotName: id.member(v.UUID), NQN: new(export.NQN(v.UUID))})
		g.Go(func() error { return s.checkDepth(gctx, v) })
		g.Go(func() error { return s.exports.CheckHoldsIO(gctx, v.UUID) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	_, err := s.rpc.SpdkgateLvolSnapshot(ctx, p)
	if errors.Is(err, spdkrpc.MethodNotFound) {
		return fmt.Errorf("%w: this target's proxy is too old to freeze several volumes at the same moment: upgrade spdk-proxy", ErrNotTogether)
	}
	return err
}

// describeGroup returns a group with its members.
func (s *Service) describeGroup(ctx context.Context, id GroupID, m members) (Group, error) {
	group := Group{ID: id, CreatedAt: id.createdAt(), Snapshots: make([]Snapshot, len(m))}
	g, gctx := errgroup.WithContext(ctx)
	for i, l := range m {
		g.Go(func() (err error) {
			group.Snapshots[i], err = s.GetSnapshot(gctx, l.UUID)
			if errors.Is(err, ErrNotFound) {
				return fmt.Errorf("target %s: %w: %s, a snapshot of %s, was deleted during the call: try again", s.Name, ErrBusy, l.Alias, id)
			}
			return err
		})
	}
	err := g.Wait()
	slices.SortFunc(group.Snapshots, func(a, b Snapshot) int { return cmp.Compare(a.SourceUUID, b.SourceUUID) })
	return group, err
}

// GetGroup returns a group snapshot. It fails with ErrNotFound unless all of its snapshots exist, and with ErrMismatch if
// they are not those in ids.
func (s *Service) GetGroup(ctx context.Context, id GroupID, ids []string) (Group, error) {
	found, err := s.groupsOf(ctx, id.Hash)
	if err != nil {
		return Group{}, err
	}
	m := found[id]
	if len(m) != id.Size() {
		return Group{}, fmt.Errorf("target %s: group snapshot %s: %w: %d of its %d snapshots exist: delete it", s.Name, id, ErrNotFound, len(m), id.Size())
	}
	if err := s.checkMembers(ctx, id, m, ids); err != nil {
		return Group{}, err
	}
	return s.describeGroup(ctx, id, m)
}

// DeleteGroup deletes a group snapshot, and what interrupted attempts have left of it. Clones are treated as by
// DeleteSnapshot. It fails with ErrMismatch, before it
// deletes anything, if ids are not its snapshots; those that are deleted already may be among them. It succeeds if the group
// does not exist.
func (s *Service) DeleteGroup(ctx context.Context, id GroupID, ids []string, claim Claim) error {
	found, err := s.groupsOf(ctx, id.Hash)
	if err != nil {
		return err
	}
	if err := s.checkMembers(ctx, id, found[id], ids); err != nil {
		return err
	}
	if err := s.removeMembers(ctx, found[id], claim); err != nil {
		return err
	}
	complete := found.complete()
	for other, m := range found {
		if other != id && !slices.Contains(complete, other) {
			if err := s.removeHalfMade(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMembers checks that ids are those of a group's members, or of snapshots that do not exist.
func (s *Service) checkMembers(ctx context.Context, id GroupID, m members, ids []string) error {
	for _, l := range m {
		if !slices.Contains(ids, l.UUID) {
			return fmt.Errorf("target %s: %w: %s belongs to %s, but is not among the requested snapshots", s.Name, ErrMismatch, l.Alias, id)
		}
	}
	for _, other := range ids {
		if slices.ContainsFunc(m, func(l spdkrpc.LvolInfo) bool { return l.UUID == other }) {
			continue
		}
		v, err := s.Get(ctx, other)
		if err == nil {
			return fmt.Errorf("target %s: %w: %s does not belong to %s", s.Name, ErrMismatch, v, id)
		}
		if !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}

// removeHalfMade deletes the snapshots of an interrupted attempt, or none if one of them has clones: then somebody knows of it.
func (s *Service) removeHalfMade(ctx context.Context, m members) error {
	for _, l := range m {
		v, err := s.Get(ctx, l.UUID)
		if err == nil {
			err = hasClones(s.Name, v)
		}
		if ignore(err, ErrNotFound) != nil {
			return err
		}
	}
	return s.removeMembers(ctx, m, nil)
}

// removeMembers deletes snapshots, or none if one of them has clones that cannot be detached.
func (s *Service) removeMembers(ctx context.Context, m members, claim Claim) error {
	var all []Volume
	for _, l := range m {
		v, err := s.Get(ctx, l.UUID)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err == nil {
			err = s.makeDeletable(ctx, v, claim)
		}
		if err != nil {
			return err
		}
		all = append(all, v)
	}
	for _, v := range all { // one after the other: they may share bases
		if err := s.removeWithBases(ctx, v); err != nil {
			return err
		}
	}
	return nil
}
