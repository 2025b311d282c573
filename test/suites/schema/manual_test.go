package schema

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/check"
)

// TestManualExamplesMatchTheSchema checks the examples of SPDK's manual against the schema.
// DISAGREEMENTS.md lists exactly the examples that do not match.
func TestManualExamplesMatchTheSchema(t *testing.T) {
	trees := os.Getenv("SPDK_SRC_TREES")
	if trees == "" {
		t.Skip("SPDK_SRC_TREES=v26.05=/path/to/spdk:… checks the examples of SPDK's manual")
	}
	for _, tree := range strings.Split(trees, ":") {
		release, path, _ := strings.Cut(tree, "=")
		listed := disagreements(t, release)
		if len(listed) == 0 {
			continue // the table covers only some releases
		}
		t.Run(release, func(t *testing.T) {
			m := readManual(t, path)
			c := check.Checker{Document: rpcschema.Default(), Release: rpcschema.MustRelease(release)}
			report, err := c.Read("manual", strings.NewReader(m.text()))
			require.NoError(t, err)
			t.Logf("%d examples, %d more are not JSON; %d calls and %d answers checked, %d violations", m.examples, m.broken, report.Calls, report.Results, len(report.Violations))
			require.Greater(t, report.Calls, 200)
			found := map[string]bool{}
			for _, v := range report.Violations {
				place := m.place(v)
				found[place] = true
				assert.Contains(t, listed, place, "not in DISAGREEMENTS.md: %s", v)
			}
			for _, place := range listed {
				assert.True(t, found[place], "in DISAGREEMENTS.md, but the example matches the schema: %s", place)
			}
		})
	}
}

// disagreements returns the rows in the table for one release's manual, as "method part".
func disagreements(t *testing.T, release string) (places []string) {
	text, err := os.ReadFile("../../../rpcschema/areas/DISAGREEMENTS.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `") || len(cells) != 7 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if slices.Contains(strings.Split(cells[3], ", "), release) {
			require.NotEmpty(t, cells[5], "%s: the column for the place in the code is empty", cells[1])
			places = append(places, strings.Trim(cells[1], "`")+" "+cells[2])
		}
	}
	return places
}

// A manual is SPDK's doc/jsonrpc.md with everything except the examples blanked out, so that line
// numbers remain the same.
type manual struct {
	lines            []string
	section          []string // the method that each line's section describes
	examples, broken int
}

func (m *manual) text() string { return strings.Join(m.lines, "\n") }

// place returns the example that contains a violation.
func (m *manual) place(v check.Violation) string {
	part, _, _ := strings.Cut(strings.TrimPrefix(v.Pointer, "/"), "/")
	if v.Method != "" && (part == "params" || part == "result") {
		return v.Method + " " + part
	}
	return m.section[v.Line-1] + " text"
}

var (
	fence   = regexp.MustCompile("^(~~~|```)")
	heading = regexp.MustCompile(`^#+ (\w+)`)
)

func readManual(t *testing.T, tree string) *manual {
	text, err := os.ReadFile(filepath.Join(tree, "doc", "jsonrpc.md.jinja2"))
	if os.IsNotExist(err) {
		text, err = os.ReadFile(filepath.Join(tree, "doc", "jsonrpc.md"))
	}
	require.NoError(t, err)
	source := strings.Split(string(text), "\n")
	m := &manual{lines: make([]string, len(source)), section: make([]string, len(source))}
	method, askedBadly := "", false
	for i := 0; i < len(source); i++ {
		if h := heading.FindStringSubmatch(source[i]); h != nil && strings.Contains(h[1], "_") {
			method = h[1]
		}
		m.section[i] = method
		mark := fence.FindString(source[i])
		if mark == "" {
			continue
		}
		end := i + 1
		for end < len(source) && !strings.HasPrefix(source[end], mark) && !strings.HasPrefix(source[end], "#") {
			m.section[end] = method
			end++
		}
		block := strings.Join(source[i+1:min(end, len(source))], "\n")
		request := strings.Contains(block, `"method":`) && !strings.Contains(block, `"result":`)
		looksRight := strings.Contains(block, `"jsonrpc"`) || strings.Contains(block, `"result":`) || request
		switch {
		case end < len(source) && strings.HasPrefix(source[end], "#"): // the block is not closed
			end--
		case !isJSON(block):
			if looksRight {
				m.broken++
				askedBadly = askedBadly || request
			}
		case request:
			m.examples++
			askedBadly = false
			copy(m.lines[i+1:end], source[i+1:end])
		case askedBadly: // the response to a request that could not be read
		case looksRight:
			m.examples++
			copy(m.lines[i+1:end], source[i+1:end])
		case strings.HasPrefix(strings.TrimSpace(block), "[") || strings.HasPrefix(strings.TrimSpace(block), "{"): // a bare result
			m.examples++
			copy(m.lines[i+1:end], source[i+1:end])
			m.lines[i], m.lines[end] = `{"id": 1, "result":`, "}"
		}
		i = end
	}
	return m
}

// isJSON accepts several values one after another.
func isJSON(text string) bool {
	dec := json.NewDecoder(strings.NewReader(text))
	var v any
	for n := 0; ; n++ {
		if err := dec.Decode(&v); err != nil {
			return n > 0 && err.Error() == "EOF"
		}
	}
}
