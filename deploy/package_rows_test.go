package deploy

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// A packageRow is an entry in the list contents in package/nfpm.yaml.
type packageRow struct {
	Source   string `yaml:"src"`
	Target   string `yaml:"dst"`
	Type     string `yaml:"type"`
	Packager string `yaml:"packager"`
	Info     struct {
		Mode fs.FileMode `yaml:"mode"`
	} `yaml:"file_info"`
}

// files returns the files that the row adds to a package, with their modes. For man pages, which
// only a build creates, it returns nil.
func (r packageRow) files(t *testing.T) map[string]string {
	t.Helper()
	switch {
	case strings.HasPrefix(r.Source, "${BIN}/man/"):
		return nil
	case r.Type == "dir":
		if r.Info.Mode == 0o755 { // TestPackagesContainAllFiles ignores such directories
			return nil
		}
		return map[string]string{r.Target: (r.Info.Mode | fs.ModeDir).String()}
	case !strings.Contains(r.Source, "*"):
		if !strings.HasPrefix(r.Source, "${BIN}/") {
			assert.FileExists(t, filepath.Join(repository, r.Source))
		}
		return map[string]string{r.Target: r.Info.Mode.String()}
	}
	found, err := filepath.Glob(filepath.Join(repository, r.Source))
	require.NoError(t, err)
	require.NotEmpty(t, found, r.Source)
	files := map[string]string{}
	for _, name := range found {
		files[path.Join(r.Target, filepath.Base(name))] = r.Info.Mode.String()
	}
	return files
}

// Both packages contain every unit, manual page and dashboard in the repository.
// TestPackagesContainAllFiles checks the same for built packages, but takes a long time.
func TestPackageRowsIncludeAllFiles(t *testing.T) {
	text, err := os.ReadFile("package/nfpm.yaml")
	require.NoError(t, err)
	var all struct{ Contents []packageRow }
	require.NoError(t, yaml.Unmarshal(text, &all))
	for _, pattern := range []string{"*.service", "*.socket", "*.path"} {
		units, err := filepath.Glob(filepath.Join(repository, "systemd", pattern))
		require.NoError(t, err)
		for _, unit := range units {
			assert.Contains(t, packaged, "/usr/lib/systemd/system/"+filepath.Base(unit))
		}
	}
	for packager, license := range map[string]string{"deb": "/usr/share/doc/spdk-proxy/copyright", "rpm": "/usr/share/licenses/spdk-proxy/LICENSE"} {
		t.Run(packager, func(t *testing.T) {
			found, directories := map[string]string{}, map[string]bool{}
			for _, row := range all.Contents {
				if row.Packager != "" && row.Packager != packager {
					continue
				}
				directories[row.Target] = directories[row.Target] || row.Type == "dir"
				for name, mode := range row.files(t) {
					assert.NotContains(t, found, name, "two rows add the same file")
					found[name] = mode
					if strings.HasPrefix(name, "/usr/share/doc/") && packager == "rpm" && !strings.Contains(name, "/examples/") {
						assert.Equal(t, "doc", row.Type, name)
					}
				}
			}
			wanted := packagedBy(t, license)
			for name, mode := range wanted {
				assert.Equal(t, mode, found[name], "%s: add a row to deploy/package/nfpm.yaml", name)
			}
			for name := range found {
				assert.Contains(t, slices.Collect(maps.Keys(wanted)), name)
			}
			for name := range found {
				for dir := path.Dir(name); strings.Contains(dir, "spdk-proxy"); dir = path.Dir(dir) {
					assert.True(t, directories[dir], "rpm would leave %s behind: add a row of type dir", dir)
				}
			}
		})
	}
}
