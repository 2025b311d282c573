package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

var (
	figure      = regexp.MustCompile(`\d+(?:,\d{3})*(?:\.\d+)?(?: (?:µs|ms|s|MB|MiB|GiB|TiB)\b)?`)
	destination = regexp.MustCompile(`\]\(([^)#]*)`)
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
)

// figures returns the numbers in a string, with their units and without thousands separators.
func figures(text string) (found []string) {
	for _, n := range figure.FindAllString(text, -1) {
		found = append(found, strings.ReplaceAll(n, ",", ""))
	}
	return found
}

// Each figure in the sizing page's tables must also be on the measurements page, or on the page
// that its cell links to.
func TestSizesAreMeasured(t *testing.T) {
	measurements := readPage(t, "docs/measurements.md")
	found := 0
	for _, table := range tables(readPage(t, "docs/sizing.md")) {
		if len(table[0]) < 2 || table[0][1] != "Figure" {
			continue
		}
		for _, row := range table[1:] {
			sources := measurements
			for _, link := range destination.FindAllStringSubmatch(row[1], -1) {
				sources += readPage(t, filepath.Join("docs", link[1]))
			}
			measured := map[string]bool{}
			for _, n := range figures(sources) {
				measured[n] = true
			}
			for _, n := range figures(linkTarget.ReplaceAllString(row[1], "")) {
				found++
				assert.True(t, measured[n], "sizing.md: %s: nothing measured %s", row[0], n)
			}
		}
	}
	assert.Greater(t, found, 40)
}

// tables returns the tables on a page as rows of cells, beginning with the header row.
func tables(page string) (found [][][]string) {
	inside := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		if !inside {
			found = append(found, nil)
			inside = true
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		if !strings.HasPrefix(line, "|---") {
			found[len(found)-1] = append(found[len(found)-1], cells)
		}
	}
	return found
}

// The sidecars' settings on the sizing page must be the same as in the manifests.
func TestSizingPageStatesSidecarSettings(t *testing.T) {
	page := readPage(t, "docs/sizing.md")
	controller := readPage(t, "deploy/kubernetes/controller.yaml")
	for row, setting := range map[string]string{
		"| `--kube-api-qps`, `--kube-api-burst` | 100, 200 |":                                                   "--kube-api-qps=100\n            - --kube-api-burst=200\n",
		"| `--worker-threads` of csi-attacher | 100 |":                                                          "--worker-threads=100\n",
		"| `--max-entries` of csi-attacher | 10,000 |":                                                          "--max-entries=10000\n",
		"| `terminationGracePeriodSeconds` of the controller | 15 s |":                                          "terminationGracePeriodSeconds: 15\n",
		"| [512 MiB](../deploy/kubernetes/controller.yaml) |":                                                   "memory: 512Mi\n",
		"512 MiB; 128 MiB for livenessprobe and node-driver-registrar":                                          "memory: 128Mi\n",
		"| memory request of each sidecar | 32 or 48 MiB; 16 MiB for livenessprobe and node-driver-registrar |": "memory: 48Mi\n",
	} {
		assert.Contains(t, page, row)
		assert.Contains(t, controller, setting, row)
	}
}

// The architecture page must list each port in the manifests.
func TestArchitecturePageNamesAllPorts(t *testing.T) {
	page := strings.ReplaceAll(readPage(t, "docs/architecture.md"), "8081 to 8084", "8081 8082 8083 8084")
	ports := regexp.MustCompile(`(?:containerPort: |http-endpoint=[0-9.]*:|metrics-address=127.0.0.1:)(\d+)`)
	for _, manifest := range []string{"controller.yaml", "node.yaml"} {
		found := ports.FindAllStringSubmatch(readPage(t, filepath.Join("deploy/kubernetes", manifest)), -1)
		require.NotEmpty(t, found)
		for _, port := range found {
			assert.Regexp(t, `\b`+port[1]+`\b`, page, manifest)
		}
	}
}

// Each question must have an answer with a link.
func TestFAQAnswersContainLinks(t *testing.T) {
	sections := strings.Split(readPage(t, "docs/faq.md"), "\n### ")[1:]
	require.GreaterOrEqual(t, len(sections), 20)
	for _, section := range sections {
		question, answer, _ := strings.Cut(section, "\n")
		assert.Regexp(t, `\?$`, question)
		assert.Regexp(t, destination, answer, question)
	}
}
