package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLinkTargetsExist(t *testing.T) {
	docs := documents(t)
	for name, d := range docs {
		t.Run(name, func(t *testing.T) {
			for _, link := range d.links {
				assert.NoError(t, follow(docs, d, link), "the link to %s", link)
			}
		})
	}
}

// follow checks that the target of a relative link exists. The tests do not fetch pages from other
// sites.
func follow(docs map[string]document, from document, link string) error {
	u, err := url.Parse(link)
	switch {
	case err != nil:
		return err
	case u.Scheme == "http":
		return errors.New("use https")
	case u.Scheme != "":
		return nil
	case filepath.IsAbs(u.Path):
		return errors.New("an absolute path does not exist in a clone: make it relative")
	}
	path := from.path
	if u.Path != "" {
		path = filepath.Join(filepath.Dir(from.path), u.Path)
	}
	if path == ".." || strings.HasPrefix(path, "../") {
		return errors.New("the target is outside of the repository")
	}
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		return err
	}
	if u.Fragment == "" {
		return nil
	}
	target, ok := docs[path]
	if !ok {
		return fmt.Errorf("%s is not a Markdown file, so it has no anchors", path)
	}
	if !slices.Contains(target.anchors, u.Fragment) {
		return fmt.Errorf("%s has no heading #%s; its headings are %v", path, u.Fragment, target.anchors)
	}
	return nil
}

// makeCommand matches a make command in a document, with its target.
var makeCommand = regexp.MustCompile(`(?:^|[\s;&|(]|\$ )make ([a-z][a-z0-9-]*)`)

func TestMakeTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	named := 0
	for name, d := range documents(t) {
		for _, code := range d.code {
			for _, m := range makeCommand.FindAllStringSubmatch(code, -1) {
				named++
				assert.Regexp(t, `(?m)^`+m[1]+`:`, string(makefile), "%s tells people to run `make %s`", name, m[1])
			}
		}
	}
	assert.NotZero(t, named, "no document names a make target")
}

// Repository paths that documents mark as code must exist. For an identifier in a package, such as
// driver/connect.Export, the test checks the package's path.
func TestNamedPathsExist(t *testing.T) {
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for name, d := range documents(t) {
		for _, code := range d.code {
			for word := range strings.FieldsSeq(code) {
				path := strings.TrimPrefix(strings.Trim(word, `"',;:()[]`), "./")
				first, _, deeper := strings.Cut(path, "/")
				ours := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.IsDir() && e.Name() == first })
				if !ours || !deeper || first == "bin" || strings.ContainsAny(path, "…<>{}$=\\") {
					continue
				}
				assert.True(t, exists(path) || exists(strings.TrimSuffix(path, filepath.Ext(path))), "%s names %s, which does not exist", name, path)
			}
		}
	}
}

func exists(path string) bool {
	found, err := filepath.Glob(filepath.Join(root, filepath.Dir(path), strings.TrimSuffix(filepath.Base(path), "...")))
	return err == nil && len(found) > 0
}

// The repository must contain the files that newcomers look for first.
func TestMainDocumentsExist(t *testing.T) {
	for _, name := range []string{"README.md", "DESIGN.md", "CONTRIBUTING.md", "LICENSE", "Makefile"} {
		assert.FileExists(t, filepath.Join(root, name))
	}
}
