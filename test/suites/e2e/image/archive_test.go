package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The archive contains the image's configuration, which in turn contains the digest of the image's
// layer.
func TestWrittenImageIsConsistent(t *testing.T) {
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	require.NoError(t, os.MkdirAll(filepath.Join(tree, "usr/bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "usr/bin/tool"), []byte("tool"), 0o755))
	require.NoError(t, os.Symlink("usr/bin", filepath.Join(tree, "bin")))
	file := filepath.Join(dir, "image.tar")
	require.NoError(t, Write(file, Image{
		Names: []string{"example/a:v1"}, Entrypoint: []string{"/usr/bin/tool"}, User: "65532:65532",
		Contents: []Content{Tree(tree), Folder("/tmp", 0o1777), File(filepath.Join(tree, "usr/bin/tool"), "/opt/other/tool", 0o700), Text("/etc/passwd", "root:x:0:0\n"), Link("/usr/bin/link", "tool")},
	}))

	archive := entries(t, file)
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	require.NoError(t, json.Unmarshal(archive["manifest.json"].text, &manifest))
	require.Len(t, manifest, 1)
	assert.Equal(t, []string{"example/a:v1"}, manifest[0].RepoTags)
	var config struct {
		Config struct {
			Entrypoint []string
			User       string
		} `json:"config"`
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	require.NoError(t, json.Unmarshal(archive[manifest[0].Config].text, &config))
	assert.Equal(t, []string{"/usr/bin/tool"}, config.Config.Entrypoint)
	assert.Equal(t, "65532:65532", config.Config.User)
	layer := archive[manifest[0].Layers[0]].text
	sum := sha256.Sum256(layer)
	assert.Equal(t, []string{"sha256:" + hex.EncodeToString(sum[:])}, config.RootFS.DiffIDs)

	files := entriesOf(t, layer)
	assert.Equal(t, "tool", string(files["usr/bin/tool"].text))
	assert.EqualValues(t, 0o755, files["usr/bin/tool"].header.Mode&0o777)
	assert.Equal(t, "usr/bin", files["bin"].header.Linkname)
	assert.Equal(t, "tool", files["usr/bin/link"].header.Linkname)
	assert.EqualValues(t, 0o1777, files["tmp/"].header.Mode)
	assert.EqualValues(t, 0o700, files["opt/other/tool"].header.Mode)
	assert.Contains(t, files, "opt/other/", "the directories of a file come before it")
	for name, e := range files {
		assert.Zero(t, e.header.Uid, name)
	}
}

type entry struct {
	header *tar.Header
	text   []byte
}

func entries(t *testing.T, file string) map[string]entry {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return entriesOf(t, text)
}

func entriesOf(t *testing.T, archive []byte) map[string]entry {
	found := map[string]entry{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return found
		}
		require.NoError(t, err)
		assert.NotContains(t, found, h.Name, "each entry is there once")
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		found[h.Name] = entry{h, text}
	}
}
