package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/spdkgate/spdkgate/driver"
)

// block returns the first code block of a language in a section of the README.
func block(t *testing.T, section, language string) string {
	readme, err := os.ReadFile("kubernetes/README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "# "+section+"\n")
	require.True(t, ok)
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(rest)
	require.NotNil(t, found)
	return strings.ReplaceAll(found[1], "\n   ", "\n") // in a list
}

// The example without a password in the README is consistent: the projected volume has the token
// file that the secret names, for the audience and account in the proxy's manual.
func TestWithoutAPassword(t *testing.T) {
	volume := block(t, "Without a password", "yaml")
	objects, err := decode("README.md", []byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\nspec:\n  containers: []\n  volumes:\n"+strings.ReplaceAll("\n"+strings.TrimSpace(volume), "\n", "\n    ")))
	require.NoError(t, err)
	shown := objects[0].Object.(*corev1.Pod).Spec.Volumes
	require.Len(t, shown, 1)
	_, replaced := controller(t).mount(t, "spdkcsi-controller", driver.CredentialsDir)
	assert.Equal(t, replaced.Name, shown[0].Name)
	sources := shown[0].Projected.Sources
	require.Len(t, sources, 2)
	assert.Equal(t, replaced.Secret.SecretName, sources[0].Secret.Name)
	assert.Equal(t, *replaced.Secret.DefaultMode, *shown[0].Projected.DefaultMode)
	token := sources[1].ServiceAccountToken

	manual, err := os.ReadFile("../docs/authentication.md")
	require.NoError(t, err)
	assert.Contains(t, string(manual), "audience: "+token.Audience+"\n")
	account := controller(t).pod.ServiceAccountName
	assert.Contains(t, string(manual), "system:serviceaccount:"+namespace+":"+account+`"`)

	path := filepath.Join(t.TempDir(), "secret.json")
	require.NoError(t, os.WriteFile(path, []byte(block(t, "Without a password", "json")), 0o600))
	t.Setenv(driver.CredentialsEnv, path)
	_, err = driver.CredentialsFile()
	require.NoError(t, err)
	assert.Contains(t, block(t, "Without a password", "json"), `"tokenFile": "`+token.Path+`"`)
	assert.True(t, slices.ContainsFunc(loadConfig(t).Nodes, func(n driver.TargetConfig) bool {
		return strings.Contains(block(t, "Without a password", "json"), `"name": "`+n.Name+`"`)
	}))
}
