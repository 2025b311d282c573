package page

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/terminal"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

//go:embed files
var files embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{"safe": printable.String}).ParseFS(files, "files/*.html"))

// A Page is a handler that serves the page for a fleet. The page's URL contains a secret, because
// other users of this host can connect to the same address.
type Page struct {
	interval time.Duration
	read     func() *terminal.Fleet
	hosts    []string
	root     string // path that contains the secret
	files    map[string]file

	mu      sync.Mutex
	latest  *terminal.Fleet
	ended   time.Time     // when the latest read ended
	reading chan struct{} // closed when the current read ends; nil if there is none
}

type file struct {
	kind string
	text []byte
}

// New returns a Page for a listener at address. Calls of read never overlap; each begins at least
// interval after the end of the previous call.
func New(address *net.TCPAddr, interval time.Duration, read func() *terminal.Fleet) *Page {
	p := &Page{interval: interval, read: read, root: "/" + rand.Text() + "/", files: map[string]file{}}
	// Refuse all other names that resolve to this host, because another site may control them.
	for _, host := range []string{address.IP.String(), "localhost"} {
		p.hosts = append(p.hosts, net.JoinHostPort(host, fmt.Sprint(address.Port)))
	}
	for name, kind := range map[string]string{"page.js": "text/javascript; charset=utf-8", "page.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"} {
		text, err := files.ReadFile("files/" + name)
		if err != nil {
			panic(err) // impossible: the files are compiled in
		}
		p.files[name] = file{kind: kind, text: text}
	}
	return p
}

// URL returns the URL of the page, including the secret.
func (p *Page) URL() string { return "http://" + p.hosts[0] + p.root }

// policy permits only the page's own files and requests.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP serves the page and its files. It accepts only the hosts and the path in the page's
// URL, so that other sites' pages cannot access it.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	name, permitted := p.name(r)
	switch {
	case !permitted:
		http.Error(w, "this is not the address that spdk-proxy fleet printed", http.StatusForbidden)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "this page can only be read", http.StatusMethodNotAllowed)
	case name == "":
		p.mu.Lock()
		latest := p.latest
		p.mu.Unlock()
		p.write(w, "page.html", latest)
	case name == "table":
		if latest := p.fresh(r.Context()); latest != nil {
			p.write(w, "table.html", latest)
		}
	case p.files[name].text != nil:
		h.Set("Content-Type", p.files[name].kind)
		_, _ = w.Write(p.files[name].text) // the browser may have disconnected
	default:
		http.NotFound(w, r)
	}
}

// name returns the part of the path after the secret. permitted reports whether the request
// contains the secret and a permitted host.
func (p *Page) name(r *http.Request) (name string, permitted bool) {
	known := false
	for _, host := range p.hosts {
		known = known || strings.EqualFold(r.Host, host)
	}
	path := r.URL.Path
	if !known || len(path) < len(p.root) || subtle.ConstantTimeCompare([]byte(path[:len(p.root)]), []byte(p.root)) != 1 {
		return "", false
	}
	return path[len(p.root):], true
}

// fresh returns the state of the fleet, which is at most as old as the interval. If necessary, it
// waits for the current read, or starts one. It returns nil if ctx ends first.
func (p *Page) fresh(ctx context.Context) *terminal.Fleet {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest != nil && p.reading == nil && time.Since(p.ended) < p.interval {
		return p.latest
	}
	if p.reading == nil {
		ended := make(chan struct{})
		p.reading = ended
		go func() {
			defer close(ended)
			f := p.read()
			p.mu.Lock()
			defer p.mu.Unlock()
			p.latest, p.ended, p.reading = f, time.Now(), nil
		}()
	}
	reading := p.reading
	p.mu.Unlock()
	select {
	case <-reading:
	case <-ctx.Done():
	}
	p.mu.Lock()
	if ctx.Err() != nil {
		return nil
	}
	return p.latest
}

// A view contains the data for the templates.
type view struct {
	Columns []string
	Fleet   *terminal.Fleet // nil until the first read ends
	Seconds float64         // interval between refreshes
}

func (p *Page) write(w http.ResponseWriter, name string, f *terminal.Fleet) {
	var text bytes.Buffer
	if err := pages.ExecuteTemplate(&text, name, view{Columns: terminal.FleetColumns, Fleet: f, Seconds: p.interval.Seconds()}); err != nil {
		http.Error(w, "cannot show the storage servers", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text.Bytes()) // the browser may have disconnected
}
