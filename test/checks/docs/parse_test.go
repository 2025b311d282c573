package docs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The other tests depend on the parser. If it missed links, every document would pass.
func TestMarkdownIsParsed(t *testing.T) {
	d := parse("a.md", []byte("# The `proxy`: what, and why?\n\nSee [this](b.md#x), ![that](c.png), <https://example.org>, `make demo`, `[no](link.md)`.\n\n"+
		"## Twice\n\n## Twice\n\n[ref]: d.md\n\nA [ref].\n\n```\n$ make test\n[no](link.md)\n```\n"))
	assert.Equal(t, []string{"b.md#x", "c.png", "d.md"}, d.links)
	assert.Equal(t, []string{"the-proxy-what-and-why", "twice", "twice-1"}, d.anchors)
	assert.Equal(t, []string{"proxy", "make demo", "[no](link.md)", "$ make test", "[no](link.md)"}, d.code)
	assert.Equal(t, []string{"The : what, and why?", "See this, that, , , .", "Twice", "Twice", "A ref."}, strings.FieldsFunc(d.prose, func(r rune) bool { return r == '\n' }))
}

func TestFollowFindsBrokenLinks(t *testing.T) {
	docs := map[string]document{
		"DESIGN.md":                 {path: "DESIGN.md", anchors: []string{"here"}},
		"rpcschema/areas/README.md": {path: "rpcschema/areas/README.md", anchors: []string{"there"}},
	}
	for link, fine := range map[string]bool{
		"https://example.org/x#y":           true,
		"http://example.org/":               false,
		"mailto:someone@example.org":        true,
		"#here":                             true,
		"#gone":                             false,
		"Makefile":                          true,
		"Makefile#here":                     false,
		"rpcschema/areas/README.md#there":   true,
		"rpcschema/areas/README.md#nowhere": false,
		"rpcschema":                         true,
		"gone.md":                           false,
		"../elsewhere.md":                   false,
		"/etc/passwd":                       false,
	} {
		err := follow(docs, docs["DESIGN.md"], link)
		assert.Equal(t, fine, err == nil, "%s: %v", link, err)
	}
}
