//go:build kernel

package kernel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/spdkgate/spdkgate/test/tools/debian"
)

// kitVersion is part of a kit's directory name. It depends on the kit's contents; increase the
// number when kits are created in a different way.
var kitVersion = func() string {
	sum := sha256.Sum256(fmt.Append(nil, 3, packages, tools, modules))
	return hex.EncodeToString(sum[:4])
}()

// KernelVariable names a Debian package with another kernel, such as one from backports.
const KernelVariable = "SPDKGATE_KERNEL_DEB"

// kitSuffix returns the suffix that follows the kernel release in the name of a kit's directory.
func kitSuffix() string {
	if os.Getenv(KernelVariable) != "" {
		return "-kitgiven" + kitVersion
	}
	return "-kit" + kitVersion
}

// kitPattern matches the directories of usable kits.
func kitPattern() string {
	deb := os.Getenv(KernelVariable)
	if deb == "" {
		return "*" + kitSuffix()
	}
	release, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(deb), "linux-image-"), "_")
	return release + kitSuffix()
}

// authenticates reports whether the kernel supports NVMe in-band authentication.
func (k kit) authenticates() bool {
	config, err := os.ReadFile(k.root("boot/config-" + k.kernel))
	return err == nil && (bytes.Contains(config, []byte("CONFIG_NVME_HOST_AUTH=y")) || bytes.Contains(config, []byte("CONFIG_NVME_AUTH=y")))
}

// packages lists the Debian packages in a kit. Their dependencies are added automatically.
var packages = []string{
	"linux-image-amd64", "kmod", "qemu-system-x86", "seabios", "xz-utils",
	"e2fsprogs", "xfsprogs", "util-linux", "mount", "open-iscsi", "dmsetup", "cryptsetup-bin", "btrfs-progs",
}

// A kit is a directory with a kernel, an emulator and file system tools, which are unpacked from
// Debian packages.
type kit struct {
	dir    string // complete when it has its final name
	kernel string // release, such as 6.1.0-56-amd64
}

func (k kit) root(elem ...string) string { return filepath.Join(k.dir, "root", filepath.Join(elem...)) }

func (k kit) vmlinux() string { return filepath.Join(k.dir, "vmlinux") }

func (k kit) initramfs() string { return filepath.Join(k.dir, "initramfs.cpio") }

// errNoKit means that no kit can be created on this machine.
var errNoKit = errors.New("kernel tests cannot run here")

// creating is locked while a test searches for or creates a kit, because tests run in parallel.
var creating sync.Mutex

// openKit returns the newest kit in the user's cache, or creates one.
func openKit(ctx context.Context, log func(format string, args ...any)) (kit, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return kit{}, fmt.Errorf("%w: they require Linux on amd64", errNoKit)
	}
	creating.Lock()
	defer creating.Unlock()
	cache, err := os.UserCacheDir()
	if err != nil {
		return kit{}, err
	}
	cache = filepath.Join(cache, "spdkgate", "kernel")
	made, err := filepath.Glob(filepath.Join(cache, kitPattern()))
	if err != nil {
		return kit{}, err
	}
	if len(made) > 0 {
		k := kit{dir: made[len(made)-1]}
		k.kernel, _, _ = strings.Cut(filepath.Base(k.dir), "-kit")
		return k, nil
	}
	log("creating a kit from Debian packages in %s; this takes a minute, once", cache)
	k, err := makeKit(ctx, cache)
	if err != nil {
		return kit{}, fmt.Errorf("create a kit: %w", err)
	}
	return k, nil
}

func makeKit(ctx context.Context, cache string) (k kit, err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return kit{}, err
	}
	k.dir, err = os.MkdirTemp(cache, "making-")
	if err != nil {
		return kit{}, err
	}
	defer os.RemoveAll(k.dir) // if the kit is complete, the directory has its final name
	debs, err := debian.Download(ctx, k.dir, packages...)
	if errors.Is(err, debian.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", errNoKit, err)
	}
	if err != nil {
		return kit{}, err
	}
	if deb := os.Getenv(KernelVariable); deb != "" {
		debs = slices.DeleteFunc(debs, func(d string) bool { return strings.HasPrefix(filepath.Base(d), "linux-image-") })
		debs = append(debs, deb)
	}
	for _, deb := range debs {
		if err := command(ctx, "dpkg-deb", "--extract", deb, k.root()); err != nil {
			return kit{}, err
		}
	}
	releases, err := filepath.Glob(k.root("lib/modules/*"))
	if err != nil || len(releases) != 1 {
		return kit{}, fmt.Errorf("want one kernel in the packages, got %v %w", releases, err)
	}
	k.kernel = filepath.Base(releases[0])
	if err := k.run(ctx, "depmod", k.root("bin/kmod"), "-b", k.root(), k.kernel); err != nil {
		return kit{}, err
	}
	if err := k.unpackKernel(ctx); err != nil {
		return kit{}, err
	}
	if err := k.writeInitramfs(); err != nil {
		return kit{}, err
	}
	if err := os.RemoveAll(filepath.Join(k.dir, "apt")); err != nil {
		return kit{}, err
	}
	final := filepath.Join(cache, k.kernel+kitSuffix())
	if err := os.Rename(k.dir, final); err != nil && !errors.Is(err, fs.ErrExist) { // another process was faster
		return kit{}, err
	}
	return kit{dir: final, kernel: k.kernel}, nil
}

// unpackKernel unpacks the compressed kernel image, which would take an emulated processor four
// seconds at each boot. The sizes and offsets in the image's header are documented in Linux's
// Documentation/arch/x86/boot.rst.
func (k kit) unpackKernel(ctx context.Context) error {
	image, err := os.ReadFile(k.root("boot/vmlinuz-" + k.kernel))
	if err != nil {
		return err
	}
	word := func(at int) int {
		return int(image[at]) | int(image[at+1])<<8 | int(image[at+2])<<16 | int(image[at+3])<<24
	}
	const setupSectors, payloadOffset, payloadLength = 0x1f1, 0x248, 0x24c
	from := (int(image[setupSectors])+1)*512 + word(payloadOffset)
	payload := image[from : from+word(payloadLength)]
	if !bytes.HasPrefix(payload, []byte("\xfd7zXZ\x00")) {
		return os.WriteFile(k.vmlinux(), image, 0o644) // qemu also boots an image with another compression
	}
	cmd := k.command(ctx, "xz", k.root("usr/bin/xz"), "--decompress", "--stdout", "--single-stream")
	cmd.Stdin = bytes.NewReader(payload)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("unpack the kernel: %w: %s", err, lastOf(stderr.Bytes()))
	}
	return os.WriteFile(k.vmlinux(), out, 0o644)
}

// command returns a command that runs a program in the kit with the kit's loader and libraries.
func (k kit) command(ctx context.Context, name, program string, args ...string) *exec.Cmd {
	libraries := []string{k.root("lib/x86_64-linux-gnu"), k.root("usr/lib/x86_64-linux-gnu")}
	return exec.CommandContext(ctx, k.root("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
		append([]string{"--argv0", name, "--library-path", strings.Join(libraries, ":"), program}, args...)...)
}

func (k kit) run(ctx context.Context, name, program string, args ...string) error {
	if out, err := k.command(ctx, name, program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, lastOf(out))
	}
	return nil
}

func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, lastOf(out))
	}
	return nil
}

func lastOf(out []byte) string { return string(out[max(0, len(out)-2000):]) }
