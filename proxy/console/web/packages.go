package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// modules is the directory into which packages are unpacked. Editors also look for types there.
const modules = "node_modules"

const registry = "https://registry.npmjs.org"

// maxPackage is the maximum size of a package in bytes, whether packed or unpacked.
const maxPackage = 256 << 20

// A lockedPackage is a line of packages.lock.
type lockedPackage struct{ name, version, integrity, use string }

func (p lockedPackage) String() string {
	return strings.Join([]string{p.name, p.version, p.integrity, p.use}, " ")
}

// url returns the archive's URL in npm's registry.
func (p lockedPackage) url() string {
	return fmt.Sprintf("%s/%s/-/%s-%s.tgz", registry, p.name, path.Base(p.name), p.version)
}

func readLock() (list []lockedPackage, err error) {
	text, err := os.ReadFile("packages.lock")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 4 && words[0] != "#" {
			list = append(list, lockedPackage{words[0], words[1], words[2], words[3]})
		} else if len(words) > 0 && words[0] != "#" {
			return nil, fmt.Errorf("packages.lock: %q is not name, version, integrity and use", strings.TrimSpace(line))
		}
	}
	return list, nil
}

// fetchPackages fetches and unpacks the packages for one use.
func fetchPackages(use string) error {
	list, err := readLock()
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.use == use {
			if err := p.fetch(); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetchPackage unpacks one package and returns its absolute directory.
func fetchPackage(name string) (string, error) {
	list, err := readLock()
	if err != nil {
		return "", err
	}
	for _, p := range list {
		if p.name == name {
			if err := p.fetch(); err != nil {
				return "", err
			}
			return filepath.Abs(filepath.Join(modules, name))
		}
	}
	return "", fmt.Errorf("packages.lock has no %s", name)
}

// fetch downloads and unpacks a package, unless this version has already been unpacked. It rejects
// an archive whose hash differs from that in packages.lock.
func (p lockedPackage) fetch() error {
	folder := filepath.Join(modules, p.name)
	mark := filepath.Join(folder, ".locked")
	if text, err := os.ReadFile(mark); err == nil && string(text) == p.String() {
		return nil
	}
	archive, err := download(p.url())
	if err != nil {
		return err
	}
	if sum := integrity(archive); sum != p.integrity {
		return fmt.Errorf("%s is %s, but packages.lock expects %s", p.url(), sum, p.integrity)
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := unpack(archive, folder); err != nil {
		return fmt.Errorf("unpack %s: %w", p.url(), err)
	}
	return os.WriteFile(mark, []byte(p.String()), 0o644)
}

func integrity(archive []byte) string {
	sum := sha512.Sum512(archive)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

func download(url string) ([]byte, error) {
	client := http.Client{Timeout: 5 * time.Minute}
	response, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxPackage))
}

// unpack writes the regular files in an npm archive to a directory, without the first element of
// their paths. It omits documents, because this repository's checks would otherwise include them.
func unpack(archive []byte, folder string) error {
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	for files := tar.NewReader(io.LimitReader(zipped, maxPackage)); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		_, name, _ := strings.Cut(header.Name, "/")
		if header.Typeflag != tar.TypeReg || !filepath.IsLocal(name) || filepath.Ext(name) == ".md" {
			continue
		}
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644|os.FileMode(header.Mode)&0o111); err != nil {
			return err
		}
	}
}

// lockLine queries the registry, and returns the line of packages.lock for NAME@VERSION. A reviewer
// must compare the line with npm's page.
func lockLine(spec string) (string, error) {
	i := strings.LastIndex(spec, "@")
	if i < 1 {
		return "", fmt.Errorf("%s: write NAME@VERSION", spec)
	}
	text, err := download(registry + "/" + spec[:i] + "/" + spec[i+1:])
	if err != nil {
		return "", err
	}
	var about struct {
		Dist struct{ Integrity string }
	}
	if err := json.Unmarshal(text, &about); err != nil {
		return "", err
	}
	return lockedPackage{spec[:i], spec[i+1:], about.Dist.Integrity, "console"}.String(), nil
}

func zippedSize(text []byte) int {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	_, _ = w.Write(text)
	_ = w.Close()
	return out.Len()
}
