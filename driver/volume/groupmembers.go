package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A member is an existing snapshot of a group.
type member struct {
	*Service
	lvol spdkrpc.LvolInfo
}

func sourcesOf(all []member) (ids []string) {
	for _, m := range all {
		n, _ := parseName(m.lvol.Name)
		ids = append(ids, n.source)
	}
	slices.Sort(ids)
	return ids
}

// groups maps each attempt to take a group to the attempt's members. All attempts are for the same
// group name.
type groups map[GroupID][]member

// complete returns the complete attempts, oldest first.
func (g groups) complete() (ids []GroupID) {
	for id, m := range g {
		if len(m) == id.Size() {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b GroupID) int { return cmp.Compare(a.Attempt, b.Attempt) })
	return ids
}

// groupsOf lists the attempts, on the given targets, to take the group whose name has this hash.
func groupsOf(ctx context.Context, members []Members, hash string) (groups, error) {
	lists := make([][]spdkrpc.LvolInfo, len(members))
	g, gctx := errgroup.WithContext(ctx)
	for i, m := range members {
		g.Go(func() (err error) {
			lists[i], err = m.Service.lvols(gctx)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	found := groups{}
	for i, list := range lists {
		for _, l := range list {
			if n, ours := parseName(l.Name); ours && n.group.Hash == hash {
				found[n.group] = append(found[n.group], member{members[i].Service, l})
			}
		}
	}
	return found, nil
}

// targetsOf lists the names of targets, for errors.
func targetsOf(members []Members) string {
	var names []string
	for _, m := range members {
		names = append(names, m.Service.Name)
	}
	if len(names) == 1 {
		return "target " + names[0]
	}
	return "targets " + strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

// checkMembers fails if any existing member does not belong to the group.
func checkMembers(ctx context.Context, id GroupID, all []member, members []Members) error {
	listed := map[string]bool{}
	for _, m := range members {
		for _, uuid := range m.UUIDs {
			listed[uuid] = true
		}
	}
	if id.Several() && len(listed) != id.Size() { // the other members may be on targets that were not queried
		return fmt.Errorf("%w: %s has %d snapshots, but %d are requested", ErrMismatch, id, id.Size(), len(listed))
	}
	for _, m := range all {
		if !listed[m.lvol.UUID] {
			return fmt.Errorf("target %s: %w: %s belongs to %s, but is not among the requested snapshots", m.Name, ErrMismatch, m.lvol.Alias, id)
		}
		delete(listed, m.lvol.UUID)
	}
	for _, m := range members {
		for _, uuid := range m.UUIDs {
			if !listed[uuid] {
				continue
			}
			v, err := m.Service.Get(ctx, uuid)
			if err == nil {
				return fmt.Errorf("target %s: %w: %s does not belong to %s", m.Service.Name, ErrMismatch, v, id)
			}
			if !errors.Is(err, ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

// removeHalfMade deletes the snapshots of an interrupted attempt. If any of them has clones, it
// deletes none, because a caller has already received the group.
func removeHalfMade(ctx context.Context, all []member) error {
	for _, m := range all {
		v, err := m.Get(ctx, m.lvol.UUID)
		if err == nil {
			err = m.hasClones(ctx, v)
		}
		if ignore(err, ErrNotFound) != nil {
			return err
		}
	}
	return removeMembers(ctx, all, nil)
}

// removeMembers deletes snapshots, or none if one of them has clones that cannot be detached.
func removeMembers(ctx context.Context, all []member, claim Claim) error {
	var found []source
	for _, m := range all {
		v, err := m.Get(ctx, m.lvol.UUID)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err == nil {
			err = m.makeDeletable(ctx, v, claim)
		}
		if err != nil {
			return err
		}
		found = append(found, source{m.Service, v})
	}
	for _, v := range found { // one at a time, because the snapshots may share bases
		if err := v.removeWithBases(ctx, v.Volume); err != nil {
			return err
		}
	}
	return nil
}
