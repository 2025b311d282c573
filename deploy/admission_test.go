package deploy

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The node plugin's token can remove the startup taint of its own node, and change nothing else. The test has a module of its
// own, because it evaluates CEL.
func TestAdmissionPolicy(t *testing.T) {
	cmd := exec.Command("go", "test", "-count=1", ".")
	cmd.Dir = "admission"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
