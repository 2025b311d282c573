package roles

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/dryrun"
	"github.com/spdkgate/spdkgate/rpcschema"
)

var accountBlock = regexp.MustCompile("(?s)```yaml\n(users:\n.*?)```")

// The account in docs/csi-credentials.md is allowed to make the driver's NVMe-oF calls, but not its
// iSCSI calls.
func TestDocumentedAccountAllowsTheDriversCalls(t *testing.T) {
	page, err := os.ReadFile("../../../docs/csi-credentials.md")
	require.NoError(t, err)
	block := accountBlock.FindSubmatch(page)
	require.NotNil(t, block, "the page must show an account")
	path := filepath.Join(t.TempDir(), "spdk-proxy.yaml")
	require.NoError(t, os.WriteFile(path, block[1], 0o600))
	r, err := dryrun.Load(path, rpcschema.Default())
	require.NoError(t, err)
	require.Len(t, r.Users(), 1)
	for _, method := range called(t) {
		c, err := r.Call(r.Users()[0], method, nil, false, rpcschema.Release{})
		require.NoError(t, err)
		assert.Equal(t, !strings.HasPrefix(method, "iscsi_"), c.Allowed(), method)
	}
}
