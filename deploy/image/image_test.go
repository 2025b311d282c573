package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const repository = "../.."

// The images match the Dockerfiles, and contain the files that a base image would provide.
func TestRecipesMatchDockerfiles(t *testing.T) {
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

// The lock lists all packages for all architectures, and a compiler that the module accepts.
func TestLockListsAllPackages(t *testing.T) {
	l, err := readLock(filepath.Base(lockFile))
	require.NoError(t, err)
	assert.Regexp(t, `^go1\.26\.\d+$`, l.goVersion)
	assert.Regexp(t, `^\d{8}T\d{6}Z$`, l.snapshot)
	used := 0
	for _, r := range recipes {
		names := map[string][]string{}
		for _, arch := range architectures {
			found, err := l.of(r, arch)
			require.NoError(t, err)
			for _, p := range found {
				assert.Regexp(t, `^[0-9a-f]{64}$`, p.sha256, p.name)
				assert.Regexp(t, `^debian(-security)?/pool/.*_(all|`+arch+`)\.deb$`, p.path)
				names[arch] = append(names[arch], p.name)
			}
			used += len(found)
		}
		assert.Equal(t, names["amd64"], names["arm64"], r.program)
	}
	assert.Len(t, l.packages, used, "packages of no image")
	_, err = l.of(recipe{program: "spdk-proxy", packages: []string{"base-files", "dash"}}, "amd64")
	require.ErrorContains(t, err, "does not have dash for spdk-proxy and amd64: run make image-lock")
	copied := filepath.Join(t.TempDir(), "lock")
	require.NoError(t, l.write(copied))
	want, err := os.ReadFile(filepath.Base(lockFile))
	require.NoError(t, err)
	got, err := os.ReadFile(copied)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
	require.NoError(t, os.WriteFile(copied, []byte("amd64 x 1 short path -\n"), 0o600))
	_, err = readLock(copied)
	require.ErrorContains(t, err, "not a valid lock line")
}

// Debian packages are unpacked without setuid bits and unused files. Files for /bin go to /usr/bin.
func TestPackagesAreUnpacked(t *testing.T) {
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

func TestMissingLibrariesAreReported(t *testing.T) {
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

func TestSBOMListsPackagesAndModules(t *testing.T) {
	l, err := readLock(filepath.Base(lockFile))
	require.NoError(t, err)
	packages, err := l.of(recipes[0], "arm64")
	require.NoError(t, err)
	info := &buildinfo.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{
		{Path: "example.org/a", Version: "v1.0.0+incompatible"}, {Path: "example.org/old", Version: "v1", Replace: &debug.Module{Path: "example.org/new", Version: "v2"}},
	}}
	d := listContents(recipes[0], "arm64", options{version: "v1"}, info, packages, "sha256:abc")
	require.NoError(t, spdxlib.ValidateDocument(d)) // relationships name packages in the document
	ids, locators := map[spdx.ElementID]bool{}, ""
	for _, p := range d.Packages {
		assert.False(t, ids[p.PackageSPDXIdentifier], p.PackageSPDXIdentifier)
		ids[p.PackageSPDXIdentifier] = true
		locators += p.PackageExternalReferences[0].Locator + "\n"
	}
	assert.Contains(t, locators, "pkg:oci/spdk-csi@sha256:abc?arch=arm64\n")
	assert.Contains(t, locators, "pkg:golang/stdlib@go1.26.8\npkg:golang/example.org/a@v1.0.0%2Bincompatible\npkg:golang/example.org/new@v2\n")
	assert.Contains(t, locators, "pkg:deb/debian/libcryptsetup12@")
	assert.NotContains(t, locators, "arch=amd64")
	assert.Len(t, d.Relationships, len(d.Packages))
}
