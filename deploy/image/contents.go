package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"
)

// A tree maps paths, without their leading slashes, to the files in a layer.
type tree map[string]entry

type entry struct {
	kind byte // a type flag of package tar
	mode fs.FileMode
	link string
	data []byte
}

// leftOut lists paths that no program in the container uses. Copyright files are kept.
var leftOut = []string{
	"usr/share/man/", "usr/share/info/", "usr/share/locale/", "usr/share/lintian/", "usr/share/bash-completion/", "usr/share/doc-base/", "usr/share/initramfs-tools/",
	"usr/share/bug/", "usr/share/zsh/", "usr/lib/systemd/", "usr/lib/udev/", "usr/lib/tmpfiles.d/", "usr/lib/sysusers.d/", "etc/init.d/", "etc/cron", "etc/pam.d/", "etc/default/", "etc/update-motd.d/", "etc/kernel/",
	"usr/sbin/xfs_scrub", "usr/sbin/e2scrub", "usr/lib/python3", "var/",
}

func isLeftOut(name string) bool {
	if strings.HasPrefix(name, "usr/share/doc/") {
		return path.Base(name) != "copyright"
	}
	return slices.ContainsFunc(leftOut, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// merged moves a path into /usr, as on Debian, where /bin and similar directories are links.
func merged(name string) string {
	first, _, _ := strings.Cut(name, "/")
	if slices.Contains(linked, first) {
		return "usr/" + name
	}
	return name
}

var linked = []string{"bin", "lib", "lib64", "sbin"}

// unpackAll returns the layer with the packages' files, and the files that their scripts would have
// created.
func unpackAll(ctx context.Context, l lock, r recipe, arch string) (tree, error) {
	packages, err := l.of(r, arch)
	if err != nil {
		return nil, err
	}
	t := tree{}
	for _, p := range packages {
		file, err := fetch(ctx, p, l.snapshot)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		if err := t.unpack(ctx, file); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", p.name, err)
		}
		control, err := exec.CommandContext(ctx, "dpkg-deb", "--field", file).Output()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", p.name, err)
		}
		t["var/lib/dpkg/status.d/"+p.name] = entry{kind: tar.TypeReg, mode: 0o644, data: control} // for image scanners
	}
	if missing := t.missingLibraries(); len(missing) > 0 {
		return nil, fmt.Errorf("leftOut excludes files that programs need: %s", strings.Join(missing, ", "))
	}
	for _, name := range linked {
		t[name] = entry{kind: tar.TypeSymlink, mode: 0o777, link: "usr/" + name}
	}
	for _, name := range []string{"dev", "proc", "run", "sys", "usr/lib64", "usr/sbin"} {
		t[name] = entry{kind: tar.TypeDir, mode: 0o755}
	}
	t["tmp"] = entry{kind: tar.TypeDir, mode: 0o777 | fs.ModeSticky}
	t["etc/passwd"] = text("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin\n")
	t["etc/group"] = text("root:x:0:\nnonroot:x:65532:\n")
	var certificates bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if strings.HasPrefix(name, "usr/share/ca-certificates/") && strings.HasSuffix(name, ".crt") {
			certificates.Write(t[name].data)
		}
	}
	if certificates.Len() == 0 {
		return nil, errors.New("ca-certificates has no certificates")
	}
	t["etc/ssl/certs/ca-certificates.crt"] = entry{kind: tar.TypeReg, mode: 0o644, data: certificates.Bytes()}
	return t, nil
}

func text(s string) entry { return entry{kind: tar.TypeReg, mode: 0o644, data: []byte(s)} }

// unpack adds the files in a Debian package. Owners and setuid bits are dropped, because the pod
// sets the container's user.
func (t tree) unpack(ctx context.Context, file string) error {
	out, err := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", file).Output()
	if err != nil {
		return err
	}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		name := merged(path.Clean("/" + h.Name)[1:])
		if name == "" || h.Typeflag == tar.TypeDir || isLeftOut(name) {
			continue // directories are created for their contents
		}
		e := entry{kind: h.Typeflag, mode: fs.FileMode(h.Mode).Perm(), link: h.Linkname}
		switch h.Typeflag {
		case tar.TypeReg:
			if e.data, err = io.ReadAll(r); err != nil {
				return err
			}
		case tar.TypeLink:
			e.link = merged(path.Clean("/" + h.Linkname)[1:])
		case tar.TypeSymlink:
		default:
			return fmt.Errorf("%s is neither a file nor a link", name)
		}
		t[name] = e
	}
}

// programLayer returns the layer that contains the program and the files from the repository.
func programLayer(r recipe, program string) (tree, error) {
	t := tree{}
	for _, f := range append([][2]string{{program, "usr/local/bin/" + r.program}}, r.files...) {
		data, err := os.ReadFile(f[0])
		if err != nil {
			return nil, err
		}
		t[f[1]] = entry{kind: tar.TypeReg, mode: 0o755, data: data}
	}
	return t, nil
}

// archive returns a tree as a tar archive. The same contents always result in the same archive.
func (t tree) archive(created time.Time) ([]byte, error) {
	all := maps.Clone(t)
	for name := range t {
		for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
			if _, ok := all[folder]; !ok {
				all[folder] = entry{kind: tar.TypeDir, mode: 0o755}
			}
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if (all[a].kind == tar.TypeLink) != (all[b].kind == tar.TypeLink) { // a link must come after its file
			if all[a].kind == tar.TypeLink {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		e := all[name]
		h := &tar.Header{Typeflag: e.kind, Name: name, Linkname: e.link, Mode: int64(e.mode.Perm()), Size: int64(len(e.data)), ModTime: created}
		if e.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		if e.kind == tar.TypeDir {
			h.Name += "/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close() // writes the end of the archive
	return b.Bytes(), err
}

// missingLibraries returns the missing libraries of the programs in a tree, as "PROGRAM needs
// LIBRARY".
func (t tree) missingLibraries() (missing []string) {
	there := map[string]bool{}
	for name := range t {
		there[path.Base(name)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if !bytes.HasPrefix(t[name].data, []byte(elf.ELFMAG)) {
			continue
		}
		f, err := elf.NewFile(bytes.NewReader(t[name].data))
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s cannot be read: %v", name, err))
			continue
		}
		libraries, err := f.ImportedLibraries()
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s cannot be read: %v", name, err))
		}
		for _, library := range libraries {
			if !there[library] {
				missing = append(missing, name+" needs "+library)
			}
		}
	}
	return missing
}
