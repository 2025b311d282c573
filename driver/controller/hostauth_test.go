package controller

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

const (
	oneKey   = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
	otherKey = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:"
)

// dhchapSecrets and the variables below are the entries that a class's Secret adds to a call's
// secrets.
var (
	dhchapSecrets  = map[string]string{"dhchap-key": oneKey, "dhchap-ctrl-key": otherKey}
	changedSecrets = map[string]string{"dhchap-key": otherKey}

	chapSecrets        = map[string]string{"chap-user": "u", "chap-password": "correct-horse-1", "chap-target-user": "t", "chap-target-password": "battery-staple-2"}
	changedCHAPSecrets = map[string]string{"chap-user": "u", "chap-password": "correct-horse-3"}
)

// createAuthenticated creates a volume that requires authentication, and adds the secrets to all
// later calls.
func (b *testController) createAuthenticated(t *testing.T, method hostauth.Method, secrets map[string]string) *csi.Volume {
	t.Helper()
	req := b.request("pvc-1", 4*mib)
	req.Parameters = map[string]string{"authentication": string(method)}
	resp, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	b.addSecrets(secrets)
	return resp.GetVolume()
}

func (b *testController) addSecrets(secrets map[string]string) {
	b.secrets = maps.Clone(b.secrets)
	maps.DeleteFunc(b.secrets, func(key, _ string) bool { return hostauth.IsSecretKey(key) })
	maps.Copy(b.secrets, secrets)
}

func TestAuthenticatedVolumesArePublished(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	v := b.createAuthenticated(t, hostauth.DHCHAP, nil)
	assert.Equal(t, "dhchap", v.GetVolumeContext()[hostauth.KeyMethod])
	_, err := b.publish(t.Context(), v, nodeA)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), "controller-publish-secret-name")
	b.addSecrets(map[string]string{"dhchap-key": "DHHC-1:00:x:"})
	_, err = b.publish(t.Context(), v, nodeA)
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "dhchap-key")
	subs, err := target.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(t, err)
	assert.Len(t, subs, 1, "nothing is exported without authentication")

	b.addSecrets(dhchapSecrets)
	resp, err := b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	m := resp.GetPublishContext()
	assert.Equal(t, []string{"dhchap", "true"}, []string{m[hostauth.KeyMethod], m[hostauth.KeyBoth]})
	e, err := connect.ParseExport(m, nil)
	require.NoError(t, err)
	require.ErrorIs(t, e.CheckKeys(), connect.ErrNoKeys)
	b.addSecrets(changedSecrets)
	resp, err = b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	assert.Empty(t, resp.GetPublishContext()[hostauth.KeyBoth])
	keys, err := target.rpc.KeyringGetKeys(t.Context())
	require.NoError(t, err)
	require.Len(t, keys, 1)
	assert.Equal(t, "csi-"+hostauth.NewSecret(otherKey).Name(), keys[0].Name)
	assert.NotContains(t, b.logs.String(), "DHHC")

	b.addSecrets(nil)
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
	keys, err = target.rpc.KeyringGetKeys(t.Context())
	require.NoError(t, err)
	assert.Empty(t, keys)

	v.VolumeContext[hostauth.KeyMethod] = "none"
	_, err = b.publish(t.Context(), v, nodeA)
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "dhchap or chap")
}

// If a class's Secret contains only host keys, the controller uses its own credentials for the
// target.
func TestSecretMayContainOnlyKeys(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	v := b.createAuthenticated(t, hostauth.DHCHAP, nil)
	b.Controller.credentialsFile = t.TempDir() + "/missing"
	b.secrets = dhchapSecrets
	_, err := b.publish(t.Context(), v, nodeA)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), "the controller's credentials")
	b.secrets = map[string]string{"dhchap-key": oneKey, "other": "x"}
	_, err = b.publish(t.Context(), v, nodeA)
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "secret.json")
}

// A class with authentication uses only targets that support its method.
func TestAuthenticationSelectsTargetsThatSupportIt(t *testing.T) {
	nvme, iscsi := newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0")
	b := newTestControllerOf(t, config.Config{Nodes: []config.Target{{}, {TargetType: config.TargetISCSI}}}, nvme, iscsi)
	for method, target := range map[string]string{"dhchap": "t0", "chap": "t1"} {
		for i := range 5 {
			req := b.request(fmt.Sprint("pvc-", method, i), 4*mib)
			req.Parameters = map[string]string{"authentication": method}
			resp, err := b.CreateVolume(t.Context(), req)
			require.NoError(t, err)
			assert.Contains(t, resp.GetVolume().GetVolumeId(), target)
		}
	}
	req := b.request("pvc-x", 4*mib)
	req.Parameters = map[string]string{"authentication": "dhchap", "target": "t1"}
	_, err := b.CreateVolume(t.Context(), req)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), "set the class parameter authentication to chap")
	source := b.create(t, "pvc-source", 4*mib)
	req = b.request("pvc-copy", 4*mib)
	wrong := "dhchap"
	if source.GetVolumeContext()["targetType"] != "iscsi" {
		wrong = "chap"
	}
	req.Parameters, req.VolumeContentSource = map[string]string{"authentication": wrong}, fromVolume(source)
	_, err = b.CreateVolume(t.Context(), req)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), "cannot authenticate hosts by "+wrong)
	req.Parameters["authentication"] = "yes"
	_, err = b.CreateVolume(t.Context(), req)
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "dhchap for NVMe-oF or chap for iSCSI")
}

// On a release that does not support authentication, the controller does not export volumes of a
// class that requires it.
func TestReleaseWithoutAuthenticationExportsNothing(t *testing.T) {
	b := newTestController(t, newSimTargetWith(t, "t0", spdktest.Options{Release: rpcschema.MustRelease("v24.01")}, storeMiB, "lvs0"))
	v := b.createAuthenticated(t, hostauth.DHCHAP, dhchapSecrets)
	_, err := b.publish(t.Context(), v, nodeA)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), "SPDK v24.01", "v24.09 or later", "not exported")
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
}

// authenticatedCalls returns CSI calls for volumes that require authentication.
func authenticatedCalls(t *testing.T, transport string) []csiCall {
	t.Helper()
	method, one, other := hostauth.DHCHAP, dhchapSecrets, changedSecrets
	if transport == config.TargetISCSI {
		method, one, other = hostauth.CHAP, chapSecrets, changedCHAPSecrets
	} else if realtarget.Given() {
		v, err := spdkrpc.NewClient(spdkrpc.NewSocket(realtarget.Socket(t))).Release(t.Context())
		require.NoError(t, err)
		if v.Before(rpcschema.MustRelease("v24.09")) {
			return nil
		}
	}
	return []csiCall{
		{"publish, authenticated", true, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
			v := b.createAuthenticated(t, method, one)
			return func(ctx context.Context) (string, error) {
				resp, err := b.publish(ctx, v, nodeA)
				return resp.GetPublishContext()[hostauth.KeyBoth], err
			}
		}},
		{"publish with changed keys", true, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
			v := b.createAuthenticated(t, method, one)
			_, err := b.publish(t.Context(), v, nodeA)
			require.NoError(t, err)
			b.addSecrets(other)
			return func(ctx context.Context) (string, error) {
				resp, err := b.publish(ctx, v, nodeA)
				return resp.GetPublishContext()[hostauth.KeyBoth], err
			}
		}},
		{"unpublish, authenticated", true, func(t *testing.T, b *crashBench) func(context.Context) (string, error) {
			v := b.createAuthenticated(t, method, one)
			_, err := b.publish(t.Context(), v, nodeA)
			require.NoError(t, err)
			return func(ctx context.Context) (string, error) { return "", b.unpublish(ctx, v.GetVolumeId(), nodeA) }
		}},
	}
}
