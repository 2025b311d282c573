package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/mount"
)

const secretKey = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"

// A volume that requires authentication is connected only with its keys, which are never written to
// a file.
func TestStageAuthenticatesWithKeys(t *testing.T) {
	n, f := newFakeNode(t)
	req := f.stageRequest(writer)
	req.VolumeContext[hostauth.KeyMethod] = "dhchap"
	refused := func(why string) {
		t.Helper()
		_, err := n.NodeStageVolume(t.Context(), req)
		drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err))
		require.ErrorContains(t, err, why)
		assert.NotContains(t, f.log, "connect")
		assert.Empty(t, f.connected)
	}
	refused("node-stage-secret-name")
	req.Secrets = map[string]string{"dhchap-ctrl-key": secretKey}
	refused("dhchap-key")
	req.Secrets = map[string]string{"dhchap-key": secretKey}
	req.PublishContext[hostauth.KeyBoth] = "true"
	refused("the target must authenticate too")
	req.Secrets["dhchap-ctrl-key"] = secretKey
	_, err := n.NodeStageVolume(t.Context(), req)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(f.staging, recordName))
	require.NoError(t, err)
	assert.NotContains(t, string(text), secretKey[10:20])
	assert.Contains(t, string(text), `"authentication":"dhchap"`)

	_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	require.NoError(t, err)
	req.Secrets["dhchap-key"] = "DHHC-1:00:x:"
	_, err = n.NodeStageVolume(t.Context(), req)
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err))
	req.VolumeContext[hostauth.KeyMethod] = "chap"
	_, err = n.NodeStageVolume(t.Context(), req)
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err))
	require.ErrorContains(t, err, "dhchap for NVMe-oF")
}

// A volume whose device no longer exists is connected again only with the keys from
// NodePublishVolume.
func TestPublishReconnectsWithKeys(t *testing.T) {
	n, f := newFakeNode(t)
	req := f.stageRequest(writer)
	req.VolumeContext[hostauth.KeyMethod] = "dhchap"
	req.Secrets = map[string]string{"dhchap-key": secretKey}
	_, err := n.NodeStageVolume(t.Context(), req)
	require.NoError(t, err)
	publish := f.publishRequest(writer, filepath.Join(t.TempDir(), "mount"))
	_, err = n.NodePublishVolume(t.Context(), publish)
	require.NoError(t, err, "it is connected, so no keys are needed")
	f.mounts = map[string]mount.Point{}
	_, err = n.NodePublishVolume(t.Context(), publish)
	require.ErrorIs(t, err, connect.ErrNoKeys)
	require.ErrorContains(t, err, "node-publish-secret-name")
	publish.Secrets = req.Secrets
	_, err = n.NodePublishVolume(t.Context(), publish)
	require.NoError(t, err)
}

// Malformed keys make NodePublishVolume fail, even if it does not need keys.
func TestMalformedKeysFailPublish(t *testing.T) {
	n, f := newFakeNode(t)
	req := f.stageRequest(writer)
	req.VolumeContext[hostauth.KeyMethod] = "dhchap"
	req.Secrets = map[string]string{"dhchap-key": secretKey}
	_, err := n.NodeStageVolume(t.Context(), req)
	require.NoError(t, err)
	publish := f.publishRequest(writer, filepath.Join(t.TempDir(), "mount"))
	publish.Secrets = map[string]string{"dhchap-key": secretKey[:20]}
	_, err = n.NodePublishVolume(t.Context(), publish)
	require.ErrorIs(t, err, hostauth.ErrMalformed)
	assert.NotContains(t, err.Error(), secretKey[:20])
	assert.NoDirExists(t, publish.GetTargetPath())
}
