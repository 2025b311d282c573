package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// The name of a snapshot contains the time of the request in seconds, so SPDK does not refuse a
// second snapshot with the same requested name. A call may still be executed after its reply was
// lost and while it is being repeated, and two controllers may be active for a short time. Before a
// call returns the snapshot that it took, it therefore looks for other snapshots with the same
// requested name. The order in which SPDK executed the calls is decisive, not the clocks: of two
// snapshots of a volume, the older is the parent of the other.

// FindSnapshot returns the snapshot that was requested under name, from any lvstore of the target.
// If there are several, it returns the oldest, because that is the snapshot that callers receive.
func (s *Service) FindSnapshot(ctx context.Context, name string) (Snapshot, error) {
	lvols, err := s.lvolsSoon(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	return s.findSnapshotIn(ctx, lvols, name)
}

func (s *Service) findSnapshotIn(ctx context.Context, lvols []spdkrpc.LvolInfo, name string) (Snapshot, error) {
	found := snapshotsNamed(lvols, name)
	if len(found) == 0 {
		return Snapshot{}, fmt.Errorf("target %s: snapshot %q: %w", s.Name, name, ErrNotFound)
	}
	first, err := s.oldest(ctx, found)
	if err != nil {
		return Snapshot{}, err
	}
	return s.GetSnapshot(ctx, first)
}

// snapshotsNamed lists the snapshots that were requested under name.
func (s *Service) snapshotsNamed(ctx context.Context, name string) ([]spdkrpc.LvolInfo, error) {
	lvols, err := s.lvolsSoon(ctx)
	return snapshotsNamed(lvols, name), err
}

func snapshotsNamed(lvols []spdkrpc.LvolInfo, name string) []spdkrpc.LvolInfo {
	want := hash(name)
	return slices.DeleteFunc(slices.Clone(lvols), func(l spdkrpc.LvolInfo) bool {
		n, ours := parseName(l.Name)
		return !isSnapshot(l.Name, l.IsSnapshot) || !(ours && !n.base && n.hash == want || l.Name == name)
	})
}

// oldest returns the UUID of the oldest of these snapshots, based on their order in the chain of
// parents. If the snapshots are in different chains, because their volumes differ, oldest uses the
// chain of the snapshot that was requested first.
func (s *Service) oldest(ctx context.Context, all []spdkrpc.LvolInfo) (string, error) {
	first := slices.MinFunc(all, func(a, b spdkrpc.LvolInfo) int {
		m, _ := parseName(a.Name)
		n, _ := parseName(b.Name)
		return cmp.Or(m.createdAt.Compare(n.createdAt), cmp.Compare(a.UUID, b.UUID))
	})
	if len(all) == 1 {
		return first.UUID, nil
	}
	oldest := first.UUID
	for alias := first.Alias; ; {
		v, err := s.lookUp(ctx, alias)
		if errors.Is(err, ErrNotFound) {
			return "", fmt.Errorf("target %s: %w: snapshot %s was deleted during the call: try again", s.Name, ErrBusy, alias)
		}
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(all, func(l spdkrpc.LvolInfo) bool { return l.UUID == v.UUID }) {
			oldest = v.UUID
		}
		if v.Base == "" {
			return oldest, nil
		}
		alias = v.Store + "/" + v.Base
	}
}

// After this call has taken a snapshot, keepOldest returns the oldest snapshot that was requested
// under name. If another snapshot is older, keepOldest deletes the snapshot that this call took,
// which no caller has received. Each call deletes only its own snapshot.
//
// Other calls may be deleting their own snapshots at the same time, so the chain can change while
// it is read, and SPDK can refuse a deletion. keepOldest therefore makes several attempts. named
// contains the snapshots with this name if they were listed after this call took its snapshot;
// otherwise it is nil.
func (s *Service) keepOldest(ctx context.Context, name string, taken Volume, named []spdkrpc.LvolInfo) (snap Snapshot, err error) {
	for tries := range keepOldestTries {
		var changing bool
		if snap, changing, err = s.tryKeepOldest(ctx, name, taken, named); !changing {
			break
		}
		named = nil
		select {
		case <-ctx.Done():
			return snap, err
		case <-time.After(time.Duration(tries+1) * 10 * time.Millisecond):
		}
	}
	return snap, err
}

const keepOldestTries = 20

// tryKeepOldest makes one attempt for keepOldest. changing is true if other calls interfered.
func (s *Service) tryKeepOldest(ctx context.Context, name string, taken Volume, found []spdkrpc.LvolInfo) (snap Snapshot, changing bool, err error) {
	own, _ := parseName(taken.Name)
	if found == nil {
		if found, err = s.snapshotsNamed(ctx, name); err != nil {
			return Snapshot{}, false, err
		}
	}
	if len(found) < 2 {
		snap, err = s.asSnapshot(taken)
		return snap, false, err
	}
	if i := slices.IndexFunc(found, func(l spdkrpc.LvolInfo) bool {
		n, _ := parseName(l.Name)
		return n.source != own.source
	}); i >= 0 {
		// It is unknown which of the two snapshots was taken first, so this call deletes its own
		// snapshot and fails. The other call may also delete its own snapshot and fail.
		return Snapshot{}, false, errors.Join(
			fmt.Errorf("target %s: %w: snapshot %q was taken of another volume at the same time, as %s: try again", s.Name, ErrBusy, name, found[i].Alias),
			s.remove(ctx, taken))
	}
	first, err := s.oldest(ctx, found)
	if err != nil {
		return Snapshot{}, errors.Is(err, ErrBusy), err
	}
	if first == taken.UUID {
		snap, err = s.asSnapshot(taken)
		return snap, false, err
	}
	if err := s.remove(ctx, taken); err != nil {
		return Snapshot{}, readback.Refused(err), fmt.Errorf("delete the second snapshot named %q: %w", name, err)
	}
	snap, err = s.GetSnapshot(ctx, first)
	return snap, false, err
}
