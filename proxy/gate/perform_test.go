package gate

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
)

// Methods that do not need the target are served even while it is down.
func TestTargetIndependentCallsAreServedWhileTargetIsDown(t *testing.T) {
	down := target.New(target.Config{Socket: filepath.Join(t.TempDir(), "missing")})
	t.Cleanup(func() { assert.NoError(t, down.Close()) })
	g := &Gate{Options: Options{Target: down}}
	for name, c := range map[string]struct {
		need     Need
		scope    *tenancy.Scope
		connects bool
	}{
		"always":                  {Always, nil, true},
		"always, for a tenant":    {Always, &tenancy.Scope{}, true},
		"for tenants":             {ForTenants, nil, false},
		"for tenants, for one":    {ForTenants, &tenancy.Scope{}, true},
		"never":                   {Never, nil, false},
		"never, even for tenants": {Never, &tenancy.Scope{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := g.connect(t.Context(), &Own{Target: c.need}, "user", c.scope)
			assert.Nil(t, conn)
			if !c.connects {
				require.NoError(t, err)
				return
			}
			var unreachable *target.DownError
			require.ErrorAs(t, err, &unreachable)
		})
	}
}
