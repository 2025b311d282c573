package volume

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// If any RPC of a read-only operation fails, the operation either fails or returns the same result
// as without the failure.
func TestFailedReadIsReported(t *testing.T) {
	b := newTestService(t, export.TCP)
	v, c := cloned(t, b)
	taken := snapshots(t, b, v, c)
	_, err := b.Export(t.Context(), c.UUID, drivertest.MultipathHost("n1"))
	require.NoError(t, err)
	r := ReplicaID{uuid.NewString(), 0}
	copied, err := b.Create(t.Context(), b.store(t, "lvs1"), Spec{Name: "pvc-3", MinBytes: 40 * MiB, Replica: &r})
	require.NoError(t, err)
	older, err := b.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: b.create(t, "pvc-5", 4).UUID, SnapshotName: "legacy"})
	require.NoError(t, err)
	legacy, err := b.GetSnapshot(t.Context(), older)
	require.NoError(t, err)
	require.Empty(t, legacy.SourceUUID)
	b.nest(t, b.create(t, "pvc-host", 40).UUID, "lvs9", "pvc-4")
	b.fault.Caller = &drivertest.KeyPlacer{Caller: b.fault.Caller, Dir: t.TempDir(), Info: func() *spdkrpc.ProxyTargetInfo {
		return &spdkrpc.ProxyTargetInfo{ExaminesVolumes: new(false)}
	}}
	config := b.Config
	config.Space = Space{Overcommit: 2, Reserve: 0.05}
	lvs0 := b.store(t, "lvs0")
	for name, read := range map[string]func(ctx context.Context, s *Service) (any, error){
		"stores":   func(ctx context.Context, s *Service) (any, error) { return s.Stores(ctx) },
		"volume":   func(ctx context.Context, s *Service) (any, error) { return s.GetVolume(ctx, v.UUID) },
		"snapshot": func(ctx context.Context, s *Service) (any, error) { return s.GetSnapshot(ctx, taken[0]) },
		"health":   func(ctx context.Context, s *Service) (any, error) { return s.Health(ctx, v.UUID) },
		"overview": func(ctx context.Context, s *Service) (any, error) {
			o, err := s.Overview(ctx)
			problem, known := o.Problem(v.UUID, v.Store)
			return []any{problem, known}, err
		},
		"inspection":     func(ctx context.Context, s *Service) (any, error) { return s.Inspect(ctx, nil) },
		"nested":         func(ctx context.Context, s *Service) (any, error) { return s.Nested(ctx) },
		"unlisted":       func(ctx context.Context, s *Service) (any, error) { return s.Unlisted(ctx) },
		"statistics":     func(ctx context.Context, s *Service) (any, error) { return s.IOStat(ctx, v.UUID) },
		"hosts":          func(ctx context.Context, s *Service) (any, error) { return s.Hosts(ctx, []string{v.UUID, c.UUID}) },
		"usage":          func(ctx context.Context, s *Service) (any, error) { return s.Usage(ctx, lvs0) },
		"largest, thin":  func(ctx context.Context, s *Service) (any, error) { return s.LargestVolume(ctx, lvs0, false) },
		"largest, thick": func(ctx context.Context, s *Service) (any, error) { return s.LargestVolume(ctx, lvs0, true) },
		"list": func(ctx context.Context, s *Service) (any, error) {
			list, next, err := s.List(ctx, Page{Max: 1})
			return fmt.Sprint(len(list), next), err
		},
		"IDs": func(ctx context.Context, s *Service) (any, error) {
			list, next, err := s.ListIDs(ctx, Page{})
			return fmt.Sprint(list, next), err
		},
		"snapshots": func(ctx context.Context, s *Service) (any, error) {
			list, next, err := s.ListSnapshots(ctx, "", Page{})
			return fmt.Sprint(list, next), err
		},
		"adverse volumes": func(ctx context.Context, s *Service) (any, error) {
			list, next, err := s.ListHealth(ctx, Page{})
			return fmt.Sprint(list, next), err
		},
		"snapshots of a volume": func(ctx context.Context, s *Service) (any, error) {
			list, next, err := s.ListSnapshots(ctx, c.UUID, Page{})
			return fmt.Sprint(list, next), err
		},
		"snapshot by name": func(ctx context.Context, s *Service) (any, error) { return s.FindSnapshot(ctx, "snapshot-of-"+v.Name) },
		"snapshot's source": func(ctx context.Context, s *Service) (any, error) {
			return s.WithSource(ctx, legacy)
		},
		"undeletable snapshot": func(ctx context.Context, s *Service) (any, error) {
			err := s.Undeletable(ctx, taken[0])
			if errors.Is(err, ErrInUse) {
				return err.Error(), nil
			}
			return "", err
		},
		"raw block volumes": func(ctx context.Context, s *Service) (any, error) { return nil, s.CheckRawBlock(ctx) },
		"replica":           func(ctx context.Context, s *Service) (any, error) { return s.FindReplica(ctx, "lvs1/"+r.LvolName()) },
		"replica's head":    func(ctx context.Context, s *Service) (any, error) { return s.HasOnlyHead(ctx, copied, 4*MiB) },
		"matching volume": func(ctx context.Context, s *Service) (any, error) {
			now, err := s.GetVolume(ctx, c.UUID)
			if err != nil {
				return nil, err
			}
			return nil, s.Matches(ctx, now, Spec{Name: "pvc-2", MinBytes: 4 * MiB, Class: class.Class{Clear: class.ClearUnmap}}, Origin{UUID: v.UUID})
		},
		"survey": func(ctx context.Context, s *Service) (any, error) {
			stores, existing, err := s.Survey(ctx, Spec{Name: "pvc-1", MinBytes: 4 * MiB})
			return []any{stores, existing}, err
		},
		"survey of a clone": func(ctx context.Context, s *Service) (any, error) {
			stores, existing, err := s.Survey(ctx, Spec{Name: "pvc-2", MinBytes: 4 * MiB, Class: class.Class{Clear: class.ClearUnmap}})
			return []any{stores, existing}, err
		},
		"unneeded lvols": func(ctx context.Context, s *Service) (any, error) {
			all, err := s.Inspect(ctx, nil)
			var found []bool
			for _, l := range all {
				yes, failed := s.Unneeded(ctx, l)
				if failed != nil {
					return nil, failed
				}
				found = append(found, yes)
			}
			return found, err
		},
	} {
		attempt := func() (any, error) {
			return read(t.Context(), NewTarget(config).Service(spdkrpc.NewClient(b.fault))) // use a new service, which has no cached state
		}
		b.fault.Reset()
		want, err := attempt()
		require.NoError(t, err, name)
		calls := b.fault.Calls()
		require.Positive(t, calls, name)
		for kind, inject := range map[string]func(n int){
			"refused":     b.fault.RefuseCall,
			"lost":        func(n int) { b.fault.FailCall(n, false, false) },
			"target dies": func(n int) { b.fault.FailCall(n, false, true) },
		} {
			failed := 0
			for n := 1; n <= calls; n++ {
				inject(n)
				got, err := attempt()
				if err != nil {
					failed++
					continue
				}
				assert.Equal(t, want, got, "%s: %s: call %d, %s", name, kind, n, b.fault.FailedMethod())
			}
			assert.Positive(t, failed, "%s: %s", name, kind)
		}
		b.fault.Reset()
	}
}
