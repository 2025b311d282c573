//go:build kernel

package kernel

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tools lists the programs that the driver's node side and the guest's targets run.
var tools = []string{
	"sbin/mke2fs", "sbin/e2fsck", "sbin/resize2fs", "sbin/mkfs.xfs", "usr/sbin/xfs_growfs", "sbin/blkid",
	"bin/mount", "bin/umount", "sbin/losetup", "bin/kmod", "sbin/iscsid", "sbin/iscsiadm", "sbin/dmsetup",
	"sbin/cryptsetup", "sbin/mkfs.btrfs", "bin/btrfs",
}

// modules lists the kernel modules that the initramfs contains. Their dependencies are added
// automatically.
var modules = []string{
	"virtio_pci", "virtio_net", "virtio_blk", "configfs", "loop", "ext4", "xfs", "crc32c_generic", "crc32c_intel",
	"nvme_tcp", "nvmet", "nvmet_tcp", "nvme_rdma", "nvmet_rdma", "rdma_rxe", "crc32_generic",
	"dm_crypt", "aesni_intel", "xts", "btrfs",
	"dm_mod", "dm_mirror", "iscsi_tcp", "sd_mod", "target_core_mod", "target_core_file", "iscsi_target_mod",
}

// An archive writes the cpio format that the kernel unpacks ("newc": Documentation/driver-api/
// early-userspace/buffer-format.rst). It also adds the parent directories of the files.
type archive struct {
	*bufio.Writer
	made map[string]bool
	ino  int
}

func newArchive(f *os.File) *archive {
	return &archive{Writer: bufio.NewWriter(f), made: map[string]bool{"": true, ".": true}}
}

func (a *archive) entry(name string, mode fs.FileMode, kind int, data []byte) {
	a.dirs(filepath.Dir(name))
	a.write(name, kind|int(mode.Perm()), data)
}

func (a *archive) dirs(dir string) {
	if a.made[dir] {
		return
	}
	a.dirs(filepath.Dir(dir))
	a.made[dir] = true
	a.write(dir, 0o040755, nil)
}

func (a *archive) write(name string, mode int, data []byte) {
	a.ino++
	pad := func(n int) string { return strings.Repeat("\x00", -n&3) }
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	a.WriteString(head + pad(len(head)))
	a.Write(data)
	a.WriteString(pad(len(data)))
}

func (a *archive) file(name string, mode fs.FileMode, data []byte) {
	a.entry(name, mode, 0o100000, data)
}

func (a *archive) link(name, to string) { a.entry(name, 0o777, 0o120000, []byte(to)) }

func (a *archive) close() error {
	a.write("TRAILER!!!", 0, nil)
	return a.Flush()
}

// writeInitramfs writes the initramfs without an init. The init is built for each run and appended
// as a second archive, which the kernel unpacks after the first.
func (k kit) writeInitramfs() (err error) {
	f, err := os.Create(k.initramfs())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	a := newArchive(f)
	for _, d := range []string{"dev", "proc", "sys", "run", "tmp", "etc/iscsi", "var/lib", "lib64"} {
		a.dirs(d)
	}
	if err := k.addTools(a); err != nil {
		return err
	}
	if err := k.addModules(a); err != nil {
		return err
	}
	for _, config := range []string{"etc/mke2fs.conf", "etc/iscsi/iscsid.conf"} {
		data, err := os.ReadFile(k.root(config))
		if err != nil {
			return err
		}
		a.file(config, 0o644, data)
	}
	a.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/:/bin/false\n"))
	a.link("etc/mtab", "/proc/self/mounts")
	a.link("sbin/mkfs.ext4", "mke2fs")
	a.link("sbin/modprobe", "/bin/kmod")
	return a.close()
}

// addTools adds the tools, their libraries and the loader.
func (k kit) addTools(a *archive) error {
	todo, done := slices.Clone(tools), map[string]bool{}
	// libgcc_s is needed because it is loaded when one of cryptsetup's threads ends.
	todo = append(todo, "lib64/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/libgcc_s.so.1")
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if done[name] {
			continue
		}
		done[name] = true
		data, err := k.read(name)
		if err != nil {
			return err
		}
		a.file(name, 0o755, data)
		program, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		libraries, err := program.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, l := range libraries {
			path, err := k.library(l)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			todo = append(todo, path)
		}
	}
	return nil
}

func (k kit) library(name string) (string, error) {
	for _, dir := range []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"} {
		if _, err := os.Lstat(k.root(dir, name)); err == nil {
			return filepath.Join(dir, name), nil
		}
	}
	return "", fmt.Errorf("library %s is not in the packages", name)
}

// read reads a file in the kit. Symlinks are resolved within the kit, even absolute ones.
func (k kit) read(name string) ([]byte, error) {
	for range 8 {
		to, err := os.Readlink(k.root(name))
		if err != nil {
			return os.ReadFile(k.root(name))
		}
		if filepath.IsAbs(to) {
			name = to
		} else {
			name = filepath.Join(filepath.Dir(name), to)
		}
	}
	return nil, fmt.Errorf("%s: too many symlinks", name)
}

// addModules adds the modules with their dependencies, as listed in modules.dep.
func (k kit) addModules(a *archive) error {
	dir := filepath.Join("lib/modules", k.kernel)
	for _, index := range []string{"modules.dep", "modules.dep.bin", "modules.alias.bin", "modules.softdep", "modules.symbols.bin", "modules.builtin", "modules.builtin.bin", "modules.order"} {
		data, err := os.ReadFile(k.root(dir, index))
		if err != nil {
			return err
		}
		a.file(filepath.Join(dir, index), 0o644, data)
	}
	builtin, err := os.ReadFile(k.root(dir, "modules.builtin"))
	if err != nil {
		return err
	}
	list, err := os.ReadFile(k.root(dir, "modules.dep"))
	if err != nil {
		return err
	}
	needs := map[string][]string{} // files by module
	for line := range strings.Lines(string(list)) {
		file, others, _ := strings.Cut(strings.TrimSpace(line), ":")
		needs[moduleName(file)] = append([]string{file}, strings.Fields(others)...)
	}
	added := map[string]bool{}
	for _, m := range modules {
		if needs[m] == nil && !slices.ContainsFunc(strings.Fields(string(builtin)), func(f string) bool { return moduleName(f) == m }) {
			return fmt.Errorf("kernel %s has no module %s", k.kernel, m)
		}
		for _, file := range needs[m] {
			if added[file] {
				continue
			}
			added[file] = true
			data, err := os.ReadFile(k.root(dir, file))
			if err != nil {
				return err
			}
			a.file(filepath.Join(dir, file), 0o644, data)
		}
	}
	return nil
}

func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// withPrograms writes the kit's initramfs with additional programs, given by their path in the
// guest.
func (k kit) withPrograms(programs map[string]string, to string) (err error) {
	base, err := os.ReadFile(k.initramfs())
	if err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(base); err != nil {
		return err
	}
	a := newArchive(f)
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		program, err := os.ReadFile(programs[name])
		if err != nil {
			return err
		}
		a.file(strings.TrimPrefix(name, "/"), 0o755, program)
	}
	return a.close()
}
