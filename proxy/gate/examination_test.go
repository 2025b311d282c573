package gate

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A tenant's call is executed only if the target has reported that it does not load data structures
// that hosts write to volumes.
func TestTenantCallsRequireDisabledExamination(t *testing.T) {
	const safe, loads, gone, left = "safe", "loads", "the target is gone", "the caller is gone"
	for name, listed := range map[string]bool{safe: true, loads: false, gone: true, left: true} {
		t.Run(name, func(t *testing.T) {
			sim, err := spdktest.Start(spdktest.Options{Socket: filepath.Join(t.TempDir(), "s"), ExamineListed: listed})
			require.NoError(t, err)
			t.Cleanup(func() { _ = sim.Close() })
			to := target.New(target.Config{Socket: sim.Socket()})
			t.Cleanup(func() { assert.NoError(t, to.Close()) })
			conn, err := to.Connect(t.Context(), "")
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			switch name {
			case gone:
				require.NoError(t, sim.Close())
			case left:
				cancel()
			}
			accepts := checkExamination(ctx, &Settings{AcceptLoading: true}, &tenancy.Scope{}, conn)
			require.NoError(t, accepts, "the administrator has accepted the risk")
			err = checkExamination(ctx, &Settings{}, &tenancy.Scope{Tenant: tenancy.Tenant{Name: "team"}}, conn)
			var refused *tenancy.Refusal
			switch name {
			case safe:
				require.NoError(t, err)
			case loads:
				require.ErrorAs(t, err, &refused)
				assert.Equal(t, "team", refused.Tenant)
			case gone:
				require.Error(t, err)
			case left:
				require.ErrorIs(t, err, context.Canceled)
			}
		})
	}
}
