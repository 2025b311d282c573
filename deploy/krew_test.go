package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// A krewPlugin is a manifest in krew's format (krew.googlecontainertools.github.com/v1alpha2).
type krewPlugin struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Version          string         `json:"version"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Caveats          string         `json:"caveats"`
		Homepage         string         `json:"homepage"`
		Platforms        []krewPlatform `json:"platforms"`
	} `json:"spec"`
}

type krewPlatform struct {
	URI      string                `json:"uri"`
	SHA256   string                `json:"sha256"`
	Selector *metav1.LabelSelector `json:"selector"`
	Bin      string                `json:"bin"`
}

// krewPlatforms lists the platforms for which `make krew` builds an archive.
func krewPlatforms(t *testing.T) []string {
	t.Helper()
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^KREW_PLATFORMS \?= (.+)$`).FindSubmatch(makefile)
	require.NotNil(t, line)
	return strings.Fields(string(line[1]))
}

// The manifest contains everything that krew requires, and an archive with its checksum for each
// platform that `make krew` builds.
func TestKrewManifestListsEveryPlatform(t *testing.T) {
	folder, sums := t.TempDir(), map[string]string{}
	for _, platform := range krewPlatforms(t) {
		archive := "kubectl-spdkgate-" + platform + ".tar.gz"
		require.NoError(t, os.WriteFile(filepath.Join(folder, archive), []byte(platform), 0o600))
		sum := sha256.Sum256([]byte(platform))
		sums["https://github.com/spdkgate/spdkgate/releases/download/v1.2.3/"+archive] = hex.EncodeToString(sum[:])
	}
	out, err := exec.Command("krew/manifest.sh", "v1.2.3", folder).Output()
	require.NoError(t, err)
	var p krewPlugin
	require.NoError(t, yaml.UnmarshalStrict(out, &p), "%s", out)
	assert.Equal(t, metav1.TypeMeta{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"}, p.TypeMeta)
	assert.Equal(t, "spdkgate", p.Name, "the file's name, and the command's")
	assert.Equal(t, "v1.2.3", p.Spec.Version)
	assert.NotContains(t, p.Spec.ShortDescription, "\n")
	assert.NotEmpty(t, p.Spec.ShortDescription)
	assert.LessOrEqual(t, len(p.Spec.ShortDescription), 50, "krew search cuts longer ones off")
	got := map[string]string{}
	for _, at := range p.Spec.Platforms {
		got[at.URI] = at.SHA256
		assert.Equal(t, "kubectl-spdkgate", at.Bin)
		labels := at.Selector.MatchLabels
		assert.True(t, strings.HasSuffix(at.URI, "-"+labels["os"]+"-"+labels["arch"]+".tar.gz"), at.URI)
		assert.Len(t, labels, 2)
	}
	assert.Equal(t, sums, got)

	require.NoError(t, os.Remove(filepath.Join(folder, "kubectl-spdkgate-darwin-arm64.tar.gz")))
	require.Error(t, exec.Command("krew/manifest.sh", "v1.2.3", folder).Run(), "no checksum is left out")
}

// The plugin can be built for all platforms in the manifest, because it does not link Linux-only
// code.
func TestKrewPlatformsCanBeBuilt(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	for _, platform := range krewPlatforms(t) {
		system, arch, _ := strings.Cut(platform, "-")
		if arch != "amd64" {
			continue // the other architecture of the same operating system has the same files
		}
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, "./cmd/kubectl-spdkgate")
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s: %s", platform, out)
	}
}

func TestKrewCompletionCallsThePlugin(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "kubectl"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o700))
	cmd := exec.Command("krew/kubectl_complete-spdkgate", "fence", "")
	cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	require.NoError(t, err)
	assert.Equal(t, "spdkgate __complete fence \n", string(out))
}
