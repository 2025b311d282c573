package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each test that `make test` skips must be run by `make test-long` and listed in CONTRIBUTING.md.
func TestLongTestsAreRun(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	text := strings.ReplaceAll(string(makefile), "\\\n", " ")
	variable := func(name string) []string {
		m := regexp.MustCompile(`(?m)^` + name + ` *= (.*)$`).FindStringSubmatch(text)
		require.NotNil(t, m, name)
		return strings.Fields(m[1])
	}
	run := slices.Concat(variable("LONG_TESTS"), variable("SLOW_TESTS"))
	packages := slices.Concat(variable("LONG_PACKAGES"), variable("SLOW_PACKAGES"))
	contributing, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	require.NoError(t, err)

	// the last sentence in the comment of a test that is shorter with -short
	shorter := regexp.MustCompile(`(?s)// With -short, it [^\n]*\nfunc (Test\w+)\(t \*testing\.T\) \{\n`)
	skips := regexp.MustCompile(`func (Test\w+)\(t \*testing\.T\) \{\n\tif testing\.Short\(\) \{\n\t\tt\.Skip\("takes long: make test-long"\)`)
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		for _, m := range shorter.FindAllStringSubmatch(string(source), -1) {
			found[m[1]] = true
		}
		for _, m := range skips.FindAllStringSubmatch(string(source), -1) {
			found[m[1]] = true
			assert.Contains(t, run, m[1], "the Makefile's LONG_TESTS or SLOW_TESTS lack it")
			assert.Contains(t, packages, "./"+folder, "the Makefile's LONG_PACKAGES or SLOW_PACKAGES lack the package of %s", m[1])
			assert.Contains(t, string(contributing), "`"+m[1]+"`", "CONTRIBUTING.md lists the tests that take long")
		}
		return err
	}))
	for _, name := range run {
		assert.True(t, found[name], "%s neither skips itself in make test nor says what it leaves out with -short, or does not exist", name)
	}
	ci, err := os.ReadFile(filepath.Join(root, ".ci/run"))
	require.NoError(t, err)
	assert.Contains(t, string(ci), "\nmake test-long\n")
}

// `make test` uses the race detector if and only if RACE=-race is set, as the documentation says.
func TestRaceDetectorIsOptional(t *testing.T) {
	for arg, used := range map[string]bool{"RACE=": false, "RACE=-race": true} {
		cmd := exec.Command("make", "--dry-run", "test", arg)
		cmd.Dir = root
		recipe, err := cmd.Output()
		require.NoError(t, err)
		assert.Contains(t, string(recipe), " -short ")
		assert.Equal(t, used, strings.Contains(string(recipe), " -race "), "%s: %s", arg, recipe)
	}
	ci, err := os.ReadFile(filepath.Join(root, ".ci/run"))
	require.NoError(t, err)
	assert.Contains(t, string(ci), "\nmake test RACE=-race\n", "CI uses the race detector")
}
