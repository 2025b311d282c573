package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/spdkgate/spdkgate/driver/config"
)

// block returns the first code block in the given language in a section of the credentials page.
func block(t *testing.T, section, language string) string {
	page, err := os.ReadFile("../docs/csi-credentials.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(page), "# "+section+"\n")
	require.True(t, ok)
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(rest)
	require.NotNil(t, found)
	return strings.ReplaceAll(found[1], "\n   ", "\n") // in a list
}

// Without a password, the projected volume contains the token file named in the controller's own
// Secret, for the audience and account in the proxy's manual. New volumes do not name a Secret; the
// Secret that existing volumes name is kept.
func TestTokenFileReplacesPassword(t *testing.T) {
	objects, _ := kustomize(t, "service-account-token")
	pod := find[*appsv1.Deployment](t, objects, "spdkcsi-controller").Spec.Template.Spec
	checkReferences(t, "spdkcsi-controller", pod)
	own := mountAt(pod, config.CredentialsDir)
	require.NotNil(t, own.source)
	assert.True(t, own.readOnly)
	_, plainVolume := controller(t).mount(t, "spdkcsi-controller", config.CredentialsDir)
	assert.Equal(t, *plainVolume.Secret.DefaultMode, *own.source.Projected.DefaultMode)
	sources := own.source.Projected.Sources
	require.Len(t, sources, 2)
	secret := find[*corev1.Secret](t, objects, sources[0].Secret.Name)
	token := sources[1].ServiceAccountToken
	manual, err := os.ReadFile("../docs/authentication.md")
	require.NoError(t, err)
	assert.Contains(t, string(manual), "audience: "+token.Audience+"\n")
	assert.Contains(t, string(manual), "system:serviceaccount:"+namespace+":"+pod.ServiceAccountName+`"`)

	path := filepath.Join(t.TempDir(), "secret.json")
	require.NoError(t, os.WriteFile(path, []byte(secret.StringData["secret.json"]), 0o600))
	t.Setenv(config.CredentialsEnv, path)
	file, err := config.CredentialsFile()
	require.NoError(t, err)
	credentials, err := config.Credentials(nil, file, "")
	require.NoError(t, err)
	for _, n := range loadConfig(t).Nodes {
		assert.Equal(t, filepath.Join(filepath.Dir(path), token.Path), credentials[n.Name].TokenFile, n.Name)
	}
	assert.JSONEq(t, block(t, "Without a password", "json"), secret.StringData["secret.json"])

	// New volumes name no Secret for any call. Existing volumes still name spdkcsi-secret.
	assert.Empty(t, secretPurposes(t, find[*storagev1.StorageClass](t, objects, storageClass).Parameters))
	assert.Empty(t, find[*snapshotv1.VolumeSnapshotClass](t, objects, snapshotClass).Parameters)
	existing := find[*corev1.Secret](t, objects, "spdkcsi-secret")
	assert.NotEqual(t, existing.Name, secret.Name)
	_, err = config.Credentials(existing.StringData, file, "")
	require.NoError(t, err, "with its password")
	_, err = config.Credentials(secret.StringData, file, "")
	require.NoError(t, err, "changed to what the controller uses itself")
}
