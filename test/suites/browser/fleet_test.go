package browser

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page of spdk-proxy fleet shows the servers that need attention first, refreshes itself, and
// reports when the command has ended.
func TestFleetPageShowsTheTable(t *testing.T) {
	w, dir := realOrSharedTestbed(t), t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("password", password+"\n")
	list := write("servers.yaml", fmt.Sprintf(`
defaults: {ca_file: %[2]s/tls.crt, user: viewer, password_file: password}
servers:
  - {name: storage-1, url: %[1]q}
  - {name: storage-2, url: "https://127.0.0.1:1"}
  - {name: storage-3, url: %[3]q, ca_file: %[2]s/tls.crt, token_file: none}
`, w.url, w.dir, strings.Replace(w.url, "127.0.0.1", "localhost", 1)))
	server := command(w.dir, filepath.Join(w.dir, "spdk-proxy"), "fleet", list, "--serve", "0", "--interval", "1s", "--timeout", "2m")
	server.Stdout, server.Stderr = nil, w.log
	out, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	ended := false
	end := func() {
		if !ended {
			ended = true
			require.NoError(t, server.Process.Signal(os.Interrupt))
			require.NoError(t, server.Wait())
		}
	}
	t.Cleanup(end)
	url, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	url = strings.TrimSpace(url)

	p, source, folder := newPage(t), axe(t), screenshotFolder(t)
	p.others = append(p.others, url)
	const names = `[...document.querySelectorAll("tbody th")].map((n) => n.innerText).join(" ")`
	for _, s := range []struct {
		name          string
		width, height int64
		dark          bool
	}{{"fleet-light", 1440, 900, false}, {"fleet-dark", 1440, 900, true}, {"fleet-phone", 390, 844, false}, {"fleet-phone-dark", 390, 844, true}} {
		p.look(s.width, s.height, s.dark)
		p.do(chromedp.Navigate(url))
		p.until(names + ` === "storage-2 storage-3 storage-1"`)
		p.has("3 storage servers, ")
		p.has(w.release(t))
		p.until(`/^\([23]\) Storage servers$/.test(document.title)`)
		p.inject(source)
		assert.Empty(t, eval[[]string](p, findings), s.name)
		assert.True(t, eval[bool](p, `document.documentElement.scrollWidth <= innerWidth`), "%s: nothing is cut off", s.name)
		p.shoot(filepath.Join(folder, s.name+".png"))
	}
	assert.Equal(t, w.url+"/console/", eval[string](p, `[...document.querySelectorAll("tbody a")].at(-1).href`))
	eval[chromedp.Void](p, `window.first = document.querySelector("time").innerText; document.querySelector("tbody a").focus(); null`)
	p.until(`document.querySelector("time").innerText !== window.first`)
	assert.Equal(t, "storage-2", eval[string](p, `document.activeElement.innerText`), "the focus stays")
	end()
	p.has("Not refreshed: the command spdk-proxy fleet has ended")
	p.until(names + ` === "storage-2 storage-3 storage-1"`)
	p.inject(source)
	assert.Empty(t, eval[[]string](p, findings), "after the command has ended")
}
