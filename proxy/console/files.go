package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"iter"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// Path is the prefix of the paths at which the console is served.
const Path = "/console/"

//go:embed dist
var dist embed.FS

// Files returns the console's files.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // cannot happen: the name is valid
	}
	return files
}

// contentPolicy is the Content-Security-Policy of all responses below Path. A page can load
// resources and script files only from this server, can send requests only to this server, and
// cannot be framed.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"

// SetHeaders sets the headers of a response below Path.
func SetHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), midi=(), payment=(), usb=()")
}

// types maps the permitted file name suffixes to content types, so that content types do not depend
// on the host.
var types = map[string]string{
	".css":         "text/css; charset=utf-8",
	".html":        "text/html; charset=utf-8",
	".ico":         "image/x-icon",
	".js":          "text/javascript; charset=utf-8",
	".json":        "application/json",
	".png":         "image/png",
	".svg":         "image/svg+xml",
	".txt":         "text/plain; charset=utf-8",
	".webmanifest": "application/manifest+json",
	".woff2":       "font/woff2",
}

const index = "index.html"

// Handler returns a handler for the files below Path. A path without a suffix that is not a file is
// a view of the page, so the handler returns the page.
func Handler(files fs.FS) (http.Handler, error) {
	h := &handler{files: map[string]*file{}}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if types[path.Ext(name)] == "" {
			return fmt.Errorf("%s: the type of such files is unknown", name)
		}
		h.files[name] = newFile(name, text)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("files of the console: %w", err)
	}
	if h.files[index] == nil {
		return nil, fmt.Errorf("files of the console: there is no %s", index)
	}
	return h, nil
}

type handler struct{ files map[string]*file }

// A file is one of the console's files.
type file struct {
	kind string
	// immutable is set if the file's name changes with its content.
	immutable  bool
	text       []byte
	tag        func() string
	compressed func() []byte // nil if compression saves too little
}

// worthCompressing is the minimum saving, in percent, that justifies compressing a file.
const worthCompressing = 10

func newFile(name string, text []byte) *file {
	return &file{
		kind: types[path.Ext(name)], text: text,
		immutable: strings.HasPrefix(name, "assets/"),
		tag: sync.OnceValue(func() string {
			sum := sha256.Sum256(text)
			return base64.RawURLEncoding.EncodeToString(sum[:12])
		}),
		compressed: sync.OnceValue(func() []byte {
			var b bytes.Buffer
			w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
			if err != nil {
				panic(err) // the level is valid
			}
			_, _ = w.Write(text) // writes to memory
			_ = w.Close()
			if b.Len() > len(text)*(100-worthCompressing)/100 {
				return nil
			}
			return b.Bytes()
		}),
	}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, Path)
	f := h.files[name]
	if f == nil && path.Ext(name) == "" {
		f = h.files[index]
	}
	if f == nil {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	header := w.Header()
	header.Set("Content-Type", f.kind)
	header.Set("Cache-Control", "no-cache")
	if f.immutable {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	header.Add("Vary", "Accept-Encoding")
	text, tag := f.text, `"`+f.tag()+`"`
	if acceptsGzip(r.Header.Values("Accept-Encoding")) {
		if short := f.compressed(); short != nil {
			header.Set("Content-Encoding", "gzip")
			text, tag = short, `"`+f.tag()+`-gzip"`
		}
	}
	header.Set("ETag", tag)
	if matches(r.Header.Values("If-None-Match"), tag) {
		header.Del("Content-Type")
		header.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(text)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // the client may have disconnected
	}
}

// acceptsGzip reports whether a client accepts gzip.
func acceptsGzip(values []string) bool {
	for item := range items(values) {
		name, weight, _ := strings.Cut(item, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, given := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
			return !given || strings.Trim(q, "0.") != ""
		}
	}
	return false
}

// matches reports whether If-None-Match contains tag.
func matches(values []string, tag string) bool {
	for item := range items(values) {
		if strings.TrimPrefix(item, "W/") == tag || item == "*" {
			return true
		}
	}
	return false
}

// items returns the items of a header with comma-separated values.
func items(values []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, value := range values {
			for item := range strings.SplitSeq(value, ",") {
				if !yield(strings.TrimSpace(item)) {
					return
				}
			}
		}
	}
}
