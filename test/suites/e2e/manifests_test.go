package e2e

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repository is the repository's root, relative to this package's directory.
const repository = "../../.."

// metadataComponent is the manifests' component that enables csi-snapshot-metadata.
const metadataComponent = "deploy/kubernetes/components/snapshot-metadata"

var imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image: (\S+)$`)

// manifestImages returns the images that are named in the manifests in the given directories. The
// keys are the names without the registry and the tag.
func manifestImages(folders ...string) (map[string][]string, error) {
	images := map[string][]string{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			for _, m := range imageLine.FindAllStringSubmatch(string(text), -1) {
				if name := imageName(m[1]); !slices.Contains(images[name], m[1]) {
					images[name] = append(images[name], m[1])
				}
			}
		}
	}
	return images, nil
}

func imageName(image string) string {
	name := path.Base(image)
	for i, c := range name {
		if c == ':' || c == '@' {
			return name[:i]
		}
	}
	return name
}

// These are the driver's images: the one in the manifests, and another one for an upgrade.
const (
	driverVersion = "v0.1.0"
	otherVersion  = "v0.1.1-e2e"
)

// notBuilt lists images in the manifests whose modules are not available from the module proxy; see
// the package comment.
var notBuilt = []string{"csi-node-driver-registrar", "livenessprobe"}

// The tests must run the sidecar versions that are named in the manifests.
func TestSidecarVersionsMatchManifests(t *testing.T) {
	var modules []byte
	for _, file := range []string{"kubernetes/go.mod", "snapshotmetadata/go.mod"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		modules = append(modules, text...)
	}
	images, err := manifestImages(filepath.Join(repository, "deploy/kubernetes"), filepath.Join(repository, metadataComponent))
	require.NoError(t, err)
	checked := 0
	for name, references := range images {
		program, sidecar := strings.CutPrefix(name, "csi-")
		if !strings.Contains(references[0], "/sig-storage/") || slices.Contains(notBuilt, name) {
			continue
		}
		require.True(t, sidecar, name)
		checked++
		_, version, _ := strings.Cut(references[0], ":")
		major, _, _ := strings.Cut(version, ".")
		module := "github.com/kubernetes-csi/external-" + program
		if major != "v1" {
			module += "/" + major
		}
		assert.Regexp(t, `(?m)\t`+regexp.QuoteMeta(module+" "+version)+`( |$)`, string(modules), "deploy/kubernetes runs %s: require this version in the tests' go.mod", references[0])
	}
	assert.Equal(t, 5, checked)
}

func TestDriverVersionMatchesManifests(t *testing.T) {
	images, err := manifestImages(filepath.Join(repository, "deploy/kubernetes"))
	require.NoError(t, err)
	assert.Equal(t, []string{"ghcr.io/spdkgate/spdk-csi:" + driverVersion}, images["spdk-csi"])
}
