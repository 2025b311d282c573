package volume

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// methods records the names of all methods called.
type methods struct {
	spdkrpc.Caller
	mu   sync.Mutex
	seen []string
}

func (m *methods) Call(ctx context.Context, method string, params, result any) error {
	m.mu.Lock()
	if !slices.Contains(m.seen, method) {
		m.seen = append(m.seen, method)
	}
	m.mu.Unlock()
	return m.Caller.Call(ctx, method, params, result)
}

// gate delays the calls of a method until all callers have called it.
type gate struct {
	spdkrpc.Caller
	method  string
	mu      sync.Mutex
	missing int
	open    chan struct{}
}

func (g *gate) Call(ctx context.Context, method string, params, result any) error {
	if method == g.method {
		g.mu.Lock()
		if g.missing--; g.missing == 0 {
			close(g.open)
		}
		g.mu.Unlock()
		select {
		case <-g.open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return g.Caller.Call(ctx, method, params, result)
}

// Every RPC of an export can be in flight for all volumes concurrently, because the driver holds no
// lock during an RPC.
func TestExportsRunConcurrently(t *testing.T) {
	const volumes = 32
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			b := newTestService(t, tr)
			of := func(c spdkrpc.Caller) *Service { return b.Target.Service(spdkrpc.NewClient(c)) }
			first := b.create(t, "first", 4)
			_, err := b.Export(t.Context(), first.UUID, drivertest.Host("n1"))
			require.NoError(t, err)
			var ids []string
			for i := range volumes {
				ids = append(ids, b.create(t, fmt.Sprintf("pvc-%d", i), 4).UUID)
			}
			all := func(method string, op func(s *Service, id string) error) {
				g := &gate{Caller: b.fault, method: method, missing: volumes, open: make(chan struct{})}
				s := of(g)
				var wg sync.WaitGroup
				for _, id := range ids {
					wg.Go(func() { assert.NoError(t, op(s, id), method) })
				}
				wg.Wait()
			}
			publish := func(s *Service, id string) error { return errorOf(s.Export(t.Context(), id, drivertest.Host("n1"))) }
			unpublish := func(s *Service, id string) error { return s.Unexport(t.Context(), id, new(drivertest.Host("n1"))) }
			publishing, unpublishing := &methods{Caller: b.fault}, &methods{Caller: b.fault}
			require.NoError(t, publish(of(publishing), ids[0]))
			require.NoError(t, unpublish(of(unpublishing), ids[0]))
			for _, method := range publishing.seen {
				all(method, publish)
				all("", unpublish)
			}
			for _, method := range unpublishing.seen {
				all("", publish)
				all(method, unpublish)
			}
			for _, id := range ids {
				require.NoError(t, b.Delete(t.Context(), id))
			}
			require.NoError(t, b.Unexport(t.Context(), first.UUID, nil))
			cleanUp(t, b, string(tr))
		})
	}
}
