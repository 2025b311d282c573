package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const repository = "../.."

// The images are those of the Dockerfiles, with what a base image would have.
func TestRecipesAndDockerfiles(t *testing.T) {
	var programs []string
	for _, r := range recipes {
		programs = append(programs, r.program)
		source, err := os.ReadFile(r.program + ".Dockerfile")
		require.NoError(t, err)
		dockerfile := string(source)
		if m := regexp.MustCompile(`--no-install-recommends ([a-z0-9. -]+)`).FindStringSubmatch(dockerfile); m != nil {
			assert.Subset(t, r.packages, strings.Fields(m[1]), r.program)
		}
		for _, m := range regexp.MustCompile(`(?m)^COPY (deploy/\S+) (\S+)$`).FindAllStringSubmatch(dockerfile, -1) {
			assert.Contains(t, r.files, [2]string{m[1], strings.TrimPrefix(m[2], "/")})
			assert.FileExists(t, filepath.Join(repository, m[1]))
		}
		assert.Contains(t, dockerfile, `ENTRYPOINT ["/usr/local/bin/`+r.program+`"]`)
		assert.Contains(t, dockerfile, "USER 65532:65532")
		cmd, err := json.Marshal(r.cmd)
		require.NoError(t, err)
		assert.Equal(t, len(r.cmd) > 0, strings.Contains(dockerfile, "CMD "+string(cmd)), r.program)
		for label, value := range labels(r, options{}) {
			if !strings.HasSuffix(label, ".created") {
				assert.Contains(t, dockerfile, label+`="`+value, r.program)
			}
		}
	}
	assert.Equal(t, []string{"spdk-csi", "spdk-proxy"}, programs)
}

// The lock has all packages for all architectures, and a compiler that the module accepts.
func TestLock(t *testing.T) {
	l, err := readLock(filepath.Base(lockFile))
	require.NoError(t, err)
	assert.Regexp(t, `^go1\.26\.\d+$`, l.goVersion)
	assert.Regexp(t, `^\d{8}T\d{6}Z$`, l.snapshot)
	var used []debian
	for _, r := range recipes {
		names := map[string][]string{}
		for _, arch := range architectures {
			found, err := l.closure(arch, r.packages)
			require.NoError(t, err)
			for _, p := range found {
				assert.Regexp(t, `^[0-9a-f]{64}$`, p.sha256, p.name)
				assert.Regexp(t, `^debian(-security)?/pool/.*_(all|`+arch+`)\.deb$`, p.path)
				names[arch] = append(names[arch], p.name)
			}
			used = append(used, found...)
		}
		assert.Equal(t, names["amd64"], names["arm64"], r.program)
	}
	for _, p := range l.packages {
		assert.True(t, slices.ContainsFunc(used, func(u debian) bool { return u.sha256 == p.sha256 && u.arch == p.arch }), "no image needs %s for %s", p.name, p.arch)
	}
	_, err = l.closure("amd64", []string{"emacs"})
	require.ErrorContains(t, err, "make image-lock")
	copied := filepath.Join(t.TempDir(), "lock")
	require.NoError(t, l.write(copied))
	want, err := os.ReadFile(filepath.Base(lockFile))
	require.NoError(t, err)
	got, err := os.ReadFile(copied)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
	require.NoError(t, os.WriteFile(copied, []byte("amd64 x 1 short path -\n"), 0o600))
	_, err = readLock(copied)
	require.ErrorContains(t, err, "not a line of a lock")
}

func TestResolve(t *testing.T) {
	available, provided := map[string]debian{}, map[string]string{}
	index := `Package: a
Version: 1
Filename: pool/main/a.deb
SHA256: aa
Pre-Depends: libc (>= 2), debconf | x
Depends: virtual, python3:any, missing | b:any (>= 1)

Package: b
Version: 1
Filename: pool/b.deb
Depends: a
Description: short
 Depends: nothing

Package: libc
Version: 2
Filename: pool/libc2.deb

Package: c
Version: 1
Provides: other, virtual (= 3)
Filename: pool/c.deb

`
	require.NoError(t, parseIndex(t.Context(), "debian", []byte(index), available, provided))
	require.NoError(t, parseIndex(t.Context(), "debian-security", []byte("Package: libc\nVersion: 2+deb12u1\nFilename: pool/libc3.deb\n\n"), available, provided))
	require.NoError(t, parseIndex(t.Context(), "debian-security", []byte("Package: b\nVersion: 0.9\nFilename: pool/old.deb\n\n"), available, provided))
	found, err := resolve([]string{"a"}, available, provided)
	require.NoError(t, err)
	var paths []string
	for _, p := range found {
		paths = append(paths, p.path)
	}
	assert.Equal(t, []string{"debian/pool/main/a.deb", "debian/pool/b.deb", "debian/pool/c.deb", "debian-security/pool/libc3.deb"}, paths)
	assert.Equal(t, []string{"b", "c", "libc"}, found[0].depends)
	delete(available, "b")
	_, err = resolve([]string{"a"}, available, provided)
	require.ErrorContains(t, err, "a: nothing satisfies missing | b:any")
}

// A Debian package is unpacked without what containers do not use, without setuid bits, and as if /bin were /usr/bin.
func TestUnpack(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"bin/tool": 0o755 | os.ModeSetuid, "lib64/ld.so": 0o755, "etc/tool.conf": 0o644, "usr/share/doc/tool/copyright": 0o644, "usr/share/doc/tool/README": 0o644,
		"usr/share/man/man1/tool.1": 0o644, "usr/bin/[": 0o755, "DEBIAN/control": 0o644,
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("Package: tool\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example>\nDescription: x\n"), mode.Perm()))
		require.NoError(t, os.Chmod(filepath.Join(root, name), mode))
	}
	require.NoError(t, os.Link(root+"/bin/tool", root+"/bin/same"))
	require.NoError(t, os.Symlink("/bin/tool", root+"/bin/link"))
	deb := filepath.Join(t.TempDir(), "tool.deb")
	out, err := exec.Command("dpkg-deb", "--build", "--root-owner-group", root, deb).CombinedOutput()
	require.NoError(t, err, "%s", out)
	contents := tree{}
	require.NoError(t, contents.unpack(t.Context(), deb))
	assert.ElementsMatch(t, []string{"usr/bin/tool", "usr/bin/same", "usr/bin/link", "usr/bin/[", "usr/lib64/ld.so", "etc/tool.conf", "usr/share/doc/tool/copyright"}, slices.Collect(maps.Keys(contents)))
	first, second := "usr/bin/same", "usr/bin/tool"
	if contents[first].kind == tar.TypeLink {
		first, second = second, first
	}
	assert.Equal(t, os.FileMode(0o755), contents[first].mode)
	assert.Equal(t, first, contents[second].link)
	assert.Equal(t, "/bin/tool", contents["usr/bin/link"].link)
}

func TestMissingLibraries(t *testing.T) {
	program, err := os.ReadFile("/bin/sh")
	require.NoError(t, err)
	f, err := elf.NewFile(bytes.NewReader(program))
	require.NoError(t, err)
	if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) != 1 {
		t.Skip("/bin/sh does not need exactly one library here")
	} else {
		sh := entry{kind: tar.TypeReg, data: program}
		assert.Equal(t, []string{"bin/sh needs " + libraries[0]}, tree{"bin/sh": sh, "x": text("#!/bin/sh")}.missingLibraries())
		assert.Empty(t, tree{"bin/sh": sh, "usr/lib/" + libraries[0]: text("")}.missingLibraries())
	}
}

// The same contents give the same bytes, and what refers to them has their digests.
func TestLayoutIsReproducible(t *testing.T) {
	o := options{version: "v1.2~x+1", revision: "abc", created: time.Unix(1_700_000_000, 0).UTC()}
	write := func() (string, []byte) {
		base := tree{"usr/bin/z": text("z"), "tmp": {kind: tar.TypeDir, mode: 0o777 | os.ModeSticky}, "usr/bin/a": {kind: tar.TypeLink, mode: 0o755, link: "usr/bin/z"}}
		var l layout
		var all []descriptor
		for _, arch := range architectures {
			d, err := l.addImage(recipes[1], arch, o, base, tree{"usr/local/bin/p": text(arch)})
			require.NoError(t, err)
			all = append(all, d)
		}
		path := filepath.Join(t.TempDir(), "x")
		name, err := l.write(path, all, reference("spdk-proxy", o.version), o.created)
		require.NoError(t, err)
		archive, err := os.ReadFile(path)
		require.NoError(t, err)
		return name, archive
	}
	first, archive := write()
	for range 5 { // maps have another order each time
		d, a := write()
		require.Equal(t, first, d)
		require.Equal(t, archive, a)
	}

	assertEnds(t, archive)
	files := untar(t, archive)
	blob := func(d descriptor, into any) []byte {
		data, ok := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		require.True(t, ok, d.Digest)
		assert.Equal(t, d.Size, int64(len(data)))
		if into != nil {
			require.NoError(t, json.Unmarshal(data, into))
		}
		return data
	}
	var top, list index
	require.NoError(t, json.Unmarshal(files["index.json"], &top))
	assert.Equal(t, first, top.Manifests[0].Digest)
	assert.Equal(t, "ghcr.io/spdkgate/spdk-proxy:v1.2-x-1", top.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
	blob(top.Manifests[0], &list)
	require.Len(t, list.Manifests, 2)
	for i, d := range list.Manifests {
		var m manifest
		var c imageConfig
		blob(d, &m)
		blob(m.Config, &c)
		assert.Equal(t, architectures[i], d.Platform.Architecture)
		assert.Equal(t, architectures[i], c.Architecture)
		assert.Equal(t, "65532:65532", c.Config.User)
		assert.Equal(t, []string{"serve"}, c.Config.Cmd)
		assert.Equal(t, "abc", c.Config.Labels["org.opencontainers.image.revision"])
		require.Len(t, m.Layers, 2)
		require.Len(t, c.History, 2)
		for n, layer := range m.Layers {
			r, err := gzip.NewReader(bytes.NewReader(blob(layer, nil)))
			require.NoError(t, err)
			plain, err := io.ReadAll(r)
			require.NoError(t, err)
			assert.Equal(t, c.RootFS.DiffIDs[n], "sha256:"+digest(plain))
			assertEnds(t, plain)
		}
	}
}

// assertEnds checks that an archive has its end, which Go's reader does not need, but other programs do.
func assertEnds(t *testing.T, archive []byte) {
	t.Helper()
	assert.Zero(t, len(archive)%512)
	assert.Equal(t, make([]byte, 1024), archive[max(0, len(archive)-1024):])
}

// untar returns the files of an archive, whose entries have no owner and the time of the build.
func untar(t *testing.T, archive []byte) map[string][]byte {
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		assert.Zero(t, h.Uid+h.Gid)
		assert.Equal(t, int64(1_700_000_000), h.ModTime.Unix())
		files[h.Name], err = io.ReadAll(r)
		require.NoError(t, err)
	}
}

func TestSBOM(t *testing.T) {
	l, err := readLock(filepath.Base(lockFile))
	require.NoError(t, err)
	packages, err := l.closure("arm64", recipes[0].packages)
	require.NoError(t, err)
	info := &buildinfo.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{
		{Path: "example.org/a", Version: "v1.0.0+incompatible"}, {Path: "example.org/old", Version: "v1", Replace: &debug.Module{Path: "example.org/new", Version: "v2"}},
	}}
	d := listContents(recipes[0], "arm64", options{version: "v1"}, info, packages, "sha256:abc")
	ids, locators := map[string]bool{}, ""
	for _, p := range d.Packages {
		assert.False(t, ids[p.SPDXID], p.SPDXID)
		ids[p.SPDXID] = true
		locators += p.ExternalRefs[0].ReferenceLocator + "\n"
	}
	assert.Contains(t, locators, "pkg:oci/spdk-csi@sha256:abc?arch=arm64\n")
	assert.Contains(t, locators, "pkg:golang/stdlib@go1.26.8\npkg:golang/example.org/a@v1.0.0%2Bincompatible\npkg:golang/example.org/new@v2\n")
	assert.Contains(t, locators, "pkg:deb/debian/libcryptsetup12@")
	assert.NotContains(t, locators, "arch=amd64")
	assert.Len(t, d.Relationships, len(d.Packages))
}
