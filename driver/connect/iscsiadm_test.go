package connect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilexec "k8s.io/utils/exec"
)

// In a container, iscsiadm is a wrapper around the node's iscsiadm. If the node has no iscsiadm,
// the error is the same as without the wrapper.
func TestMissingISCSIAdmIsReported(t *testing.T) {
	for name, script := range map[string]string{"no wrapper": "", "wrapper": "#!/bin/sh\nexec /usr/bin/env -i PATH=/nowhere iscsiadm \"$@\"\n"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if script != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "iscsiadm"), []byte(script), 0o755))
			}
			t.Setenv("PATH", dir)
			i := &iscsi{exec: utilexec.New()}
			assert.ErrorIs(t, i.iscsiadm(t.Context(), []string{"-m", "session"}), ErrUnsupported)
			assert.NoError(t, i.deleteRecord(t.Context(), Export{Transport: ISCSI, IQN: "iqn.2016-06.io.spdk:x"}), "there are no records")
		})
	}
}
