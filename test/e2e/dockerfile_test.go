package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A dockerfile is what the image that it describes has besides the program.
type dockerfile struct {
	Packages   []string
	User       string
	Entrypoint []string
	Files      [][2]string // path in the repository and path in the image
}

var (
	installs   = regexp.MustCompile(`apt-get install -y --no-install-recommends ([a-z0-9. -]+)`)
	userOf     = regexp.MustCompile(`(?m)^USER (\S+)$`)
	entrypoint = regexp.MustCompile(`(?m)^ENTRYPOINT (\[.*\])$`)
	copies     = regexp.MustCompile(`(?m)^COPY (deploy/\S+) (\S+)$`)
)

// readDockerfile reads the parts of a Dockerfile of this repository that an image made without it needs.
func readDockerfile(path string) (d dockerfile, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return d, err
	}
	packages, user, entry := installs.FindStringSubmatch(string(text)), userOf.FindStringSubmatch(string(text)), entrypoint.FindStringSubmatch(string(text))
	if packages == nil || user == nil || entry == nil {
		return d, fmt.Errorf("%s has no list of packages, no USER or no ENTRYPOINT in the form that this test reads", path)
	}
	d.Packages, d.User = strings.Fields(packages[1]), user[1]
	for _, m := range copies.FindAllStringSubmatch(string(text), -1) {
		d.Files = append(d.Files, [2]string{m[1], m[2]})
	}
	return d, json.Unmarshal([]byte(entry[1]), &d.Entrypoint)
}

// The tests' image follows the Dockerfile only if they can read it.
func TestDockerfileCanBeRead(t *testing.T) {
	d, err := readDockerfile(filepath.Join(repository, "deploy/image/spdk-csi.Dockerfile"))
	require.NoError(t, err)
	assert.Subset(t, d.Packages, []string{"e2fsprogs", "xfsprogs", "util-linux"})
	assert.Equal(t, "65532:65532", d.User)
	assert.Equal(t, []string{"/usr/local/bin/spdk-csi"}, d.Entrypoint)
	assert.Equal(t, [][2]string{{"deploy/image/iscsiadm", "/usr/local/sbin/iscsiadm"}}, d.Files)
}
