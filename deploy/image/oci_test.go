package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writeSample writes an image for both architectures and returns its digest and the archive's path.
func writeSample(t *testing.T) (digest, path string) {
	t.Helper()
	o := options{version: "v1.2~x+1", revision: "abc", created: time.Unix(1_700_000_000, 0).UTC()}
	packages := tree{"usr/bin/z": text("z"), "tmp": {kind: tar.TypeDir, mode: 0o777 | os.ModeSticky}, "usr/bin/a": {kind: tar.TypeLink, mode: 0o755, link: "usr/bin/z"}}
	var images []v1.Image
	for _, arch := range architectures {
		image, err := newImage(recipes[1], arch, o, packages, tree{"usr/local/bin/p": text(arch)})
		require.NoError(t, err)
		images = append(images, image)
	}
	path = filepath.Join(t.TempDir(), "x.oci.tar")
	digest, err := writeImages(path, images, reference("spdk-proxy", o.version), o.created)
	require.NoError(t, err)
	return digest, path
}

// The same contents result in the same bytes, regardless of the build time and of the order of maps
// and parallel writes.
func TestImageIsReproducible(t *testing.T) {
	first, path := writeSample(t)
	archive, err := os.ReadFile(path)
	require.NoError(t, err)
	for range 5 {
		again, path := writeSample(t)
		require.Equal(t, first, again)
		other, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, archive, other)
	}
	checkEntries(t, archive)
}

// GNU tar unpacks the archive into an OCI layout with correct digests, sizes and media types.
func TestArchiveIsAnOCIImageLayout(t *testing.T) {
	digest, path := writeSample(t)
	dir := t.TempDir()
	out, err := exec.Command("tar", "-x", "-C", dir, "-f", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Empty(t, out, "tar warns")
	top, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	require.NoError(t, validate.Index(top))
	names, err := top.IndexManifest()
	require.NoError(t, err)
	require.Len(t, names.Manifests, 1)
	assert.Equal(t, digest, names.Manifests[0].Digest.String())
	for _, key := range []string{"org.opencontainers.image.ref.name", "io.containerd.image.name"} {
		assert.Equal(t, "ghcr.io/spdkgate/spdk-proxy:v1.2-x-1", names.Manifests[0].Annotations[key])
	}
	list, err := top.ImageIndex(names.Manifests[0].Digest)
	require.NoError(t, err)
	manifests, err := list.IndexManifest()
	require.NoError(t, err)
	assert.Equal(t, types.OCIImageIndex, manifests.MediaType)
	require.Len(t, manifests.Manifests, len(architectures))
	for i, d := range manifests.Manifests {
		assert.Equal(t, &v1.Platform{OS: "linux", Architecture: architectures[i]}, d.Platform)
		image, err := list.Image(d.Digest)
		require.NoError(t, err)
		checkImage(t, image, architectures[i])
	}
}

func checkImage(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	m, err := image.Manifest()
	require.NoError(t, err)
	assert.Equal(t, types.OCIManifestSchema1, m.MediaType)
	assert.Equal(t, types.OCIConfigJSON, m.Config.MediaType)
	assert.Equal(t, "abc", m.Annotations["org.opencontainers.image.revision"])
	c, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, arch, c.Architecture)
	assert.Equal(t, "linux", c.OS)
	assert.Equal(t, int64(1_700_000_000), c.Created.Unix())
	assert.Equal(t, "65532:65532", c.Config.User)
	assert.Equal(t, []string{"/usr/local/bin/spdk-proxy"}, c.Config.Entrypoint)
	assert.Equal(t, []string{"serve"}, c.Config.Cmd)
	assert.Contains(t, c.Config.ExposedPorts, "9009/tcp")
	assert.Equal(t, "abc", c.Config.Labels["org.opencontainers.image.revision"])
	assert.Len(t, c.History, 2)
	layers, err := image.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 2)
	for i, layer := range layers {
		assert.Equal(t, types.OCILayer, m.Layers[i].MediaType)
		r, err := layer.Uncompressed()
		require.NoError(t, err)
		plain, err := io.ReadAll(r)
		require.NoError(t, err)
		names := checkEntries(t, plain)
		assert.Equal(t, [][]string{{"tmp/", "usr/", "usr/bin/", "usr/bin/z", "usr/bin/a"}, {"usr/", "usr/local/", "usr/local/bin/", "usr/local/bin/p"}}[i], names)
	}
}

// checkEntries returns the names in an archive. It checks that the entries have no owner and carry
// the build time. It also checks the archive's end marker, which programs other than Go's reader
// require.
func checkEntries(t *testing.T, archive []byte) (names []string) {
	t.Helper()
	assert.Zero(t, len(archive)%512)
	assert.Equal(t, make([]byte, 1024), archive[max(0, len(archive)-1024):])
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		require.NoError(t, err)
		assert.Zero(t, h.Uid+h.Gid)
		assert.Equal(t, int64(1_700_000_000), h.ModTime.Unix())
		names = append(names, h.Name)
	}
}
