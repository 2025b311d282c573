package main

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/kubernetes"
)

// The uninstall hook fails if volumes or snapshots still exist, or if it cannot list them. The
// error names the existing objects.
func TestUninstallIsRefusedWhileVolumesExist(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := runCommand(t, "uninstall-check")
	require.ErrorIs(t, err, kubernetes.ErrNoAccess)
	require.ErrorContains(t, err, "Nothing was uninstalled")

	require.NoError(t, refuseUninstall(kubernetes.Remaining{}))
	require.ErrorContains(t, refuseUninstall(kubernetes.Remaining{Snapshots: []string{"s"}}), "exist: 1 VolumeSnapshotContents (s). ")
	var many []string
	for i := range 12 {
		many = append(many, "pv-"+strconv.Itoa(i))
	}
	err = refuseUninstall(kubernetes.Remaining{Volumes: many, Snapshots: []string{"s"}})
	require.ErrorContains(t, err, "12 PersistentVolumes (pv-0, ")
	require.ErrorContains(t, err, "pv-9 and 2 more) and 1 VolumeSnapshotContents (s)")
	assert.NotContains(t, err.Error(), "pv-10")
	require.ErrorContains(t, err, "--no-hooks")
}
