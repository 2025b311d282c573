package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serveMirror serves a Debian mirror for arm64 and returns its address. The mirror contains the
// recipes' packages without dependencies, and the packages in more, whose keys are the suites'
// paths below the mirror's root.
func serveMirror(t *testing.T, more map[string]string) string {
	t.Helper()
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skip("apt-get is not installed")
	}
	var base strings.Builder
	for _, r := range recipes {
		for _, name := range r.packages {
			if !strings.Contains(more["debian/dists/bookworm"]+base.String(), "Package: "+name+"\n") {
				fmt.Fprintf(&base, "Package: %s\nVersion: 1\n\n", name)
			}
		}
	}
	files := map[string]string{}
	for _, s := range suites {
		dir := s[0] + "/dists/" + s[1]
		index := more[dir]
		if s[1] == release {
			index += "\n" + base.String()
		}
		var packages strings.Builder
		for stanza := range strings.SplitSeq(strings.TrimSpace(index), "\n\n") {
			if name, _, ok := strings.Cut(strings.TrimPrefix(stanza, "Package: "), "\n"); ok {
				fmt.Fprintf(&packages, "%s\nArchitecture: arm64\nFilename: pool/main/%s+x_arm64.deb\nSize: 1\nSHA256: %s\n\n", stanza, name, digest([]byte(stanza)))
			}
		}
		files["/"+dir+"/main/binary-arm64/Packages"] = packages.String()
		files["/"+dir+"/Release"] = fmt.Sprintf("Suite: %s\nCodename: %[1]s\nArchitectures: arm64\nComponents: main\nSHA256:\n %s %d main/binary-arm64/Packages\n", s[1], digest([]byte(packages.String())), packages.Len())
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := files[r.URL.Path]
		switch {
		case more["failing"] != "" && strings.HasPrefix(r.URL.Path, more["failing"]):
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
		case ok:
			_, _ = w.Write([]byte(text))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("no_proxy", "127.0.0.1")
	return server.URL + "/"
}

func TestResolveFindsDependencies(t *testing.T) {
	mirror := serveMirror(t, map[string]string{
		"debian/dists/bookworm": `Package: kmod
Version: 1
Pre-Depends: libc (>= 2), debconf (>= 0.5) | x
Depends: virtual, python3:any, missing | b:any (>= 1)
Recommends: dash-doc

Package: b
Version: 2:1~x
Multi-Arch: allowed

Package: dash-doc
Version: 1

Package: libc
Version: 2

Package: c
Version: 1
Provides: other, virtual (= 3)
`,
		"debian-security/dists/bookworm-security": "Package: libc\nVersion: 2+deb12u1\n\nPackage: b\nVersion: 2:0.9\n",
	})
	all, err := resolve(t.Context(), "arm64", mirror, "trusted=yes")
	require.NoError(t, err)
	versions := map[string]map[string]string{}
	for _, p := range all {
		assert.Equal(t, "arm64", p.arch)
		if versions[p.program] == nil {
			versions[p.program] = map[string]string{}
		}
		versions[p.program][p.name] = p.version
		if p.name == "libc" {
			assert.Equal(t, "debian-security/pool/main/libc+x_arm64.deb", p.path)
			assert.Equal(t, digest([]byte("Package: libc\nVersion: 2+deb12u1")), p.sha256)
		}
	}
	want := map[string]string{"b": "2:1~x", "c": "1", "libc": "2+deb12u1"}
	for _, name := range recipes[0].packages {
		want[name] = "1"
	}
	assert.Equal(t, want, versions["spdk-csi"])
	assert.Equal(t, map[string]string{"base-files": "1", "ca-certificates": "1"}, versions["spdk-proxy"])
}

// If a mirror is unsigned or overloaded, or lacks a dependency, no lock is written.
func TestFailedResolveWritesNoLock(t *testing.T) {
	_, err := resolve(t.Context(), "arm64", serveMirror(t, nil), debianKeys)
	require.ErrorContains(t, err, "apt-get update")
	_, err = resolve(t.Context(), "arm64", serveMirror(t, map[string]string{"failing": "/debian-security/"}), "trusted=yes")
	require.ErrorContains(t, err, "apt-get update")
	_, err = resolve(t.Context(), "arm64", serveMirror(t, map[string]string{"debian/dists/bookworm": "Package: kmod\nVersion: 1\nDepends: missing\n\n"}), "trusted=yes")
	require.ErrorContains(t, err, "apt-get install")
	_, err = parseURIs("'http://mirror/debian/x.deb' x_1_all.deb 3 MD5Sum:00\n", "http://mirror/")
	require.ErrorContains(t, err, "with its SHA-256")
	_, err = parseURIs("'http://other/debian/x.deb' x_1_all.deb 3 SHA256:"+strings.Repeat("0", 64)+"\n", "http://mirror/")
	require.ErrorContains(t, err, "not a package of http://mirror/")
}
