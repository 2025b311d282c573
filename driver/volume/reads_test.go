package volume

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// changes reports whether a method of SPDK changes anything. It returns false for methods that only
// the proxy implements.
func changes(method string) bool {
	m, ok := rpcschema.Default().Method(method)
	return ok && m.Mutates && !strings.HasPrefix(method, "spdkgate_")
}

// reads contains operations that change nothing.
var reads = []operation{
	{name: "list", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		cloned(t, b)
		return func(ctx context.Context) (string, error) {
			volumes, next, err := b.List(ctx, Page{})
			return fmt.Sprint(volumes, next), err
		}
	}},
	{name: "list snapshots", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v, c := cloned(t, b)
		snapshots(t, b, v, c)
		return func(ctx context.Context) (string, error) {
			snapshots, next, err := b.ListSnapshots(ctx, v.UUID, Page{})
			return fmt.Sprint(snapshots, next), err
		}
	}},
	{name: "find a snapshot", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v, c := cloned(t, b)
		snapshots(t, b, v, c)
		return func(ctx context.Context) (string, error) {
			s, err := b.FindSnapshot(ctx, "snapshot-of-pvc-2")
			return fmt.Sprint(s), err
		}
	}},
	{name: "pristine", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		v := b.create(t, "pvc-1", 4)
		snapshots(t, b, v)
		return func(ctx context.Context) (string, error) {
			v, err := b.Get(ctx, v.UUID)
			if err != nil {
				return "", err
			}
			pristine, known, err := b.Pristine(ctx, v)
			return fmt.Sprint(pristine, known), err
		}
	}},
	{name: "find a volume", prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
		b.create(t, "pvc-1", 4)
		return func(ctx context.Context) (string, error) {
			stores, err := b.Stores(ctx)
			if err != nil {
				return "", err
			}
			v, err := b.Find(ctx, stores, Spec{Name: "pvc-1"})
			return v.UUID, err
		}
	}},
}

// The driver does not read back after a call that was definitely not executed, or if the target
// does not respond.
func TestDefiniteFailuresAreNotReadBack(t *testing.T) {
	for kind, read := range map[spdkrpc.Kind]bool{
		spdkrpc.Unreachable: false, spdkrpc.InUse: false, spdkrpc.Denied: false, spdkrpc.MethodNotFound: false, spdkrpc.WrongState: false,
		spdkrpc.OutcomeUnknown: true, spdkrpc.Failed: true, spdkrpc.Exists: true, spdkrpc.NoSpace: true, spdkrpc.InvalidParams: true,
	} {
		t.Run(string(kind), func(t *testing.T) {
			b := newTestService(t, export.TCP)
			v := b.create(t, "pvc-1", 4)
			calls := 0
			s := b.Target.Service(spdkrpc.NewClient(&drivertest.FirstCall{Caller: b.fault, Method: "bdev_lvol_resize", Before: func(context.Context, any) error {
				calls = b.fault.Calls()
				return &spdkrpc.Error{Method: "bdev_lvol_resize", Kind: kind, Code: -1}
			}}))
			_, err := s.Expand(t.Context(), v.UUID, 8*MiB, 0)
			require.ErrorIs(t, err, kind)
			assert.Equal(t, read, b.fault.Calls() > calls)
		})
	}
}
